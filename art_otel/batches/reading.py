"""Batches: a dataset as a stream of numpy batches.

Invariant: the same sources and options give the same batches in the same order, from the start or gone on with from a
state. Memory is that of a window of row groups, a batch and the plan.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Final, TypeAlias, TypedDict, cast

from art_otel.batches.batch import Batch, lay_out
from art_otel.batches.chat_template import ChatTemplate
from art_otel.batches.checks import whole
from art_otel.batches.chunks import Chunk
from art_otel.batches.credit import Credit, shared_steps
from art_otel.batches.gathering import Gatherer, Lengths
from art_otel.batches.order import Order
from art_otel.batches.plan import Advantage, Plan, Refusal, Worth, make_plan
from art_otel.batches.report import BatchReport
from art_otel.batches.rows import Rows
from art_otel.batches.sequences import Sequence
from art_otel.batches.token_rewards import Weights
from art_otel.errors import UsageError
from art_otel.store import Wanted
from art_otel.trajectories import Trajectory

Packer: TypeAlias = Callable[[Iterable[Sequence]], Iterator[Rows]]

_ALL: Final = Wanted()
_TOKENS: Final = Wanted(prompts=False, messages=False)
_TURNS: Final = Wanted(prompts=False)
GIVEN_BEFORE: Final = "given before"
_Place: TypeAlias = tuple[int, int]  # a window, and a sequence in it


class State(TypedDict):
    """Where a stream stands: JSON values, to be kept beside a checkpoint.

    `dataset`, `order` and `kept` say of which stream: its fingerprint, in which order, with what left out.
    """

    dataset: str
    order: str
    kept: str
    window: int
    sequence: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How batches are made: which trajectories, worth what, in which order, laid out how.

    `kept` names the options that decide which sequences there are. `width` is that of every row, None for that of the
    batch's longest.
    """

    refusal: Refusal
    credit: Credit
    advantage: Advantage | None
    keep_flat: bool
    lengths: Lengths
    weights: Weights | None
    template: ChatTemplate | None
    order: Order
    rows: Packer
    width: int | None
    pad_token_id: int
    kept: str


class Batches:
    """The batches of trajectories, to iterate over as often as one likes.

    `report` counts what the latest iteration gave and left out so far. `state` says where it stands after the batch it
    gave last: `batches(…, resume=state)` with the same sources and options goes on from there.
    """

    def __init__(self, chunks: Items[Chunk], recipe: Recipe, resume: State | None = None) -> None:
        self._chunks = chunks
        self._recipe = recipe
        self._plan: Plan | None = None
        self._start = self._place = (0, 0) if resume is None else self._resumed(resume)
        self.report = BatchReport()

    def __iter__(self) -> Iterator[Batch]:
        """Give the batches, from the resumed state or from the beginning. Raises StoreError."""
        report = self.report = BatchReport()
        self._place = self._start
        places: deque[_Place] = deque()
        for rows in self._recipe.rows(self._sequences(report, places)):
            batch = lay_out(rows, width=self._recipe.width, pad_token_id=self._recipe.pad_token_id)
            window, sequence = [places.popleft() for row in rows for _ in row][-1]
            self._place = (window, sequence + 1)
            report.batches += 1
            report.padding += batch.input_ids.size - sum([len(sequence) for row in rows for sequence in row])
            report.give(sequence for row in rows for sequence in row)
            yield batch

    @property
    def state(self) -> State:
        """Where the latest iteration stands. The plan is read for it, which tells the dataset. Raises StoreError."""
        return self._state(self._place)

    def sequences(self) -> Iterator[Sequence]:
        """Give the sequences one by one, in the order of the batches, which are not laid out. Raises StoreError."""
        report = self.report = BatchReport()
        for sequence in self._sequences(report, deque()):
            report.give([sequence])
            yield sequence

    def trajectories(self, wanted: Wanted = _ALL) -> Iterator[tuple[Trajectory, tuple[Worth, ...]]]:
        """Give the trajectories that are selected, with what each of their turns is worth. Raises StoreError."""
        report = self.report = BatchReport()
        for window in self._recipe.order.windows(self._chunks):
            for chunk in window:
                for number, trajectory in self._selected(chunk, wanted, report):
                    report.trajectories_used += 1
                    yield trajectory, self.plan().worth(number, trajectory)

    def plan(self) -> Plan:
        """What every trajectory is worth: read at the first need, and kept."""
        if self._plan is None:
            recipe = self._recipe
            self._plan = make_plan(
                self._chunks, recipe.refusal, recipe.credit, recipe.advantage, keep_flat=recipe.keep_flat
            )
        return self._plan

    def _sequences(self, report: BatchReport, places: deque[_Place]) -> Iterator[Sequence]:
        """The sequences from the start on; `places` gets the place of each."""
        first, skipped = self._start
        order = self._recipe.order
        for number, window in enumerate(order.windows(self._chunks)):
            if number < first:
                continue
            # No name holds a window's sequences, so that they are gone before the next are read.
            for place, sequence in enumerate(order.shuffled(self._of_window(window, report), number + 1)):
                if number == first and place < skipped:
                    report.leave_out(sequence, GIVEN_BEFORE)
                    report.completions_left_out[GIVEN_BEFORE] += len(sequence.completions)
                else:
                    places.append((number, place))
                    yield sequence

    def _of_window(self, window: Items[Chunk], report: BatchReport) -> list[Sequence]:
        return [sequence for chunk in window for sequence in self._of_chunk(chunk, report)]

    def _of_chunk(self, chunk: Chunk, report: BatchReport) -> Iterator[Sequence]:
        plan = self.plan()
        gatherer = Gatherer(
            report=report,
            advantages=plan.advantages is not None,
            lengths=self._recipe.lengths,
            weights=self._recipe.weights,
            template=self._recipe.template,
        )
        wanted = _TOKENS if self._recipe.template is None else _TURNS
        for number, trajectory in self._selected(chunk, wanted, report):
            if plan.credit.per == "step":
                report.shared_steps += len(shared_steps(trajectory))
            yield from gatherer.sequences(trajectory, plan.worth(number, trajectory))

    def _selected(self, chunk: Chunk, wanted: Wanted, report: BatchReport) -> Iterator[tuple[int, Trajectory]]:
        """This reader's trajectories of a chunk that are not refused, with their numbers."""
        plan = self.plan()
        own = self._recipe.order.own(chunk.numbers)
        selected = [number for number in own if number not in plan.refusals]
        report.trajectories += len(own)
        report.trajectories_left_out.update(plan.refusals[number] for number in own if number in plan.refusals)
        if selected:
            yield from zip(selected, chunk.read(wanted, selected), strict=True)

    def _state(self, place: _Place) -> State:
        recipe = self._recipe
        window, sequence = place
        return State(
            dataset=self.plan().fingerprint,
            order=repr(recipe.order),
            kept=recipe.kept,
            window=window,
            sequence=sequence,
        )

    def _resumed(self, state: object) -> _Place:
        if not isinstance(state, Mapping):
            raise UsageError(f"resume={state!r:.200}: give the `state` of earlier batches")
        given, expected = cast(Mapping[str, object], state), self._state((0, 0))
        for name in ("dataset", "order", "kept"):
            if given.get(name) != expected[name]:
                raise UsageError(f"resume: its {name} is {given.get(name)!r}, that of these batches {expected[name]!r}")
        window, sequence = (whole(f'resume["{name}"]', given.get(name), 0) for name in ("window", "sequence"))
        return window, sequence
