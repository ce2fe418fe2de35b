"""Batches: a dataset as a stream of numpy batches.

The same sources and options give the same batches in the same order, from the beginning and from a saved state. In
memory are a window of row groups, one batch for each rank, and the plan. Where groups are kept together, sequences that
wait for other members of their group are on disk, and a saved state is reached by reading what stands before it again.

    chunks ─► windows ─► sequences ─► units (what shares a batch) ─► rounds (a batch a rank) ─► arrays
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from art_otel.data.arranging import AnySequence, Batch, Layout, PackedRows, ShuffleOrder, Unit
from art_otel.data.choosing import prepared
from art_otel.data.options import validate
from art_otel.data.plan import Plan, Scoring, TurnReward, make_plan
from art_otel.data.report import BatchReport, names_given, warn_of_no_comparison, warn_of_nothing
from art_otel.data.selection import Selection, View
from art_otel.data.sequences import BuiltSequences, PlannedSequence, SequenceBuilder, TokenSequence, Verdict
from art_otel.data.sources import Chunk, ListedChunks
from art_otel.data.verdict_columns import VerdictColumns, verdict_columns
from art_otel.data.waiting_groups import WaitingGroups
from art_otel.errors import UsageError
from art_otel.notebook import MOST_SHOWN, page_html
from art_otel.store import Wanted
from art_otel.trajectories import Trajectory

_ALL: Final = Wanted()
GIVEN_BEFORE: Final = "given before"
LAST_BATCH: Final = "last batch dropped"

_Build: TypeAlias = Callable[[Chunk, BatchReport], Iterator[tuple[int, Sequence[AnySequence]]]]
"""The sequences of each selected trajectory of a chunk, with its number."""
_Position: TypeAlias = tuple[int, int]  # a window, and a sequence in it
_NaturalNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class _LoaderState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a stream stands, and of which stream: its dataset, in which order, with what skipped."""

    dataset: str
    order: str
    kept: str
    window: _NaturalNumber
    sequence: _NaturalNumber


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How batches are made: of which trajectories, with what reward, as which sequences, in which order and layout."""

    selection: Selection
    scoring: Scoring
    builder: SequenceBuilder
    order: ShuffleOrder
    layout: Layout


class Batches:
    """Batches of trajectories. You can iterate over them as often as you like.

    `report` counts what the latest iteration gave and skipped so far.
    """

    def __init__(self, listed: ListedChunks, recipe: Recipe) -> None:
        self._listed = listed
        self._chunks = listed.chunks
        self._recipe = recipe
        self._plan: Plan | None = None
        self._count: int | None = None
        self._start = self._position = (0, 0)
        self.report = BatchReport()

    def __repr__(self) -> str:
        return f"<Batches of {sum(chunk.rows for chunk in self._chunks)} trajectories>"

    def _repr_html_(self) -> str:
        shown = islice((one for chunk in self._chunks for one in chunk.read(Wanted())), MOST_SHOWN)
        line = f"{self!r}, trained tokens so far: {self.report.trained_tokens}; below what would train of the first"
        return page_html(f"{line} {MOST_SHOWN}, with the default options", list(shown), plan=True)

    def __len__(self) -> int:
        """Return the number of batches that each rank gets in an epoch, whatever state was loaded.

        For trajectories in memory, this counts when it is first needed. For files, the number is known after a whole
        iteration, or after `count`. Before that, this raises TypeError, so that `list` and progress bars do not read a
        dataset twice.
        """
        if self._count is None and any(chunk.is_stored for chunk in self._chunks):
            raise TypeError(
                "the number of batches is not known before the tokens of the files were read once: iterate to the end,"
                " or call count(), which reads them and makes no batches"
            )
        return self.count()

    def __bool__(self) -> bool:
        """True, whether or not there are batches: to know that, tokens have to be read."""
        return True

    def __iter__(self) -> Iterator[Batch]:
        """Give this rank's batches, from the beginning or from a loaded state. Raises StoreError."""
        from_beginning, count = self._start == (0, 0), 0
        report, layout = self._new_report(), self._recipe.layout
        positions: deque[_Position] = deque()
        build: _Build = self._of_chunk
        if layout.world_size > 1 and self._recipe.builder.is_recorded:
            verdicts = self.verdict_columns()
            report = self.report = verdicts.report.before_giving()
            build = self._of_rank(verdicts, report)
        for batches in layout.rounds(self._units(report, positions, build)):
            sequences = [sequence for rows in batches for row in rows for sequence in row]
            window, last = [positions.popleft() for _ in sequences][-1]
            self._position = (window, last + 1)
            if layout.is_dropped(batches, self._recipe.order.keep_together):
                for sequence in sequences:
                    report.skip(sequence.counts, LAST_BATCH)
                break  # no whole batch comes behind it
            _count(report, layout, batches, sequences)
            count += 1
            yield layout.batch(batches)
        warn_of_nothing(report, self._recipe.selection, self._chunks)
        warn_of_no_comparison(report, self.plan())
        if from_beginning:
            self._count = count

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the latest iteration as JSON values, the same on every rank. Raises StoreError."""
        window, sequence = self._position
        return self._identity() | {"window": window, "sequence": sequence}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue from a state, with the same sources and options, on any rank.

        Raises UsageError for a state of another dataset, order or selection of trajectories.
        """
        if not isinstance(state, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] # not every caller is typed
            raise UsageError(f"state={state!r:.200}: give what state_dict() of earlier batches gave")
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise UsageError(f"state: its {name} is {state.get(name)!r}, that of these batches {value!r}")
        checked = validate(_LoaderState, state, owner="state")
        self._start = self._position = (checked.window, checked.sequence)

    def sequences(self) -> Iterator[TokenSequence]:
        """Give the sequences of all ranks one by one, in the order of the batches. Raises StoreError."""
        report = self._new_report()
        for unit in self._units(report, deque(), self._of_chunk):
            for sequence in unit:
                report.give([sequence.counts])
                if isinstance(sequence, TokenSequence):
                    yield sequence

    def sequences_by_trajectory(self) -> Iterator[list[TokenSequence]]:
        """Give the sequences of each selected trajectory together, in the order of `trajectories()`.

        Raises StoreError.
        """
        report, wanted = self._new_report(), self._recipe.builder.wanted
        for window in self._recipe.order.windows(self._chunks):
            for chunk in window:
                for number, trajectory in self._selected(chunk, wanted, report):
                    sequences = self._build(number, trajectory, report).sequences
                    report.give(one.counts for one in sequences)
                    yield sequences

    def trajectories(self, wanted: Wanted = _ALL) -> Iterator[tuple[Trajectory, tuple[TurnReward, ...]]]:
        """Give the selected trajectories, with what each of their turns is trained with. Raises StoreError."""
        report = self._new_report()
        for window in self._recipe.order.windows(self._chunks):
            for chunk in window:
                for number, trajectory in self._selected(chunk, wanted, report):
                    report.count(Verdict(rollout_id=trajectory.rollout_id, skipped=None))
                    yield trajectory, self.plan().turn_rewards(number)

    def verdicts(self) -> Iterator[Verdict]:
        """Say for each trajectory, in the order of the sources, what is trained, and why the rest is not.

        `report` has the sums of the verdicts. Raises StoreError.
        """
        report, plan = self._new_report(), self.plan()
        for chunk in self._chunks:
            for number, trajectory in zip(chunk.numbers, chunk.read(self._recipe.builder.wanted), strict=True):
                if number in plan.skipped:
                    verdict = Verdict(rollout_id=trajectory.rollout_id, skipped=plan.skipped[number])
                    report.count(verdict)
                else:
                    built = self._build(number, prepared(trajectory, self._recipe.selection), report)
                    verdict = built.verdict
                    report.give(one.counts for one in built.sequences)
                yield verdict

    def build(self, trajectory: Trajectory, turn_rewards: Sequence[TurnReward]) -> BuiltSequences:
        """The sequences of a selected trajectory whose turns are trained with these, and the verdict on it."""
        return self._recipe.builder.build(prepared(trajectory, self._recipe.selection), turn_rewards)

    def names_given(self) -> list[str]:
        """The names of the rewards of selected trajectories, with what they judge. Raises StoreError."""
        return names_given(self._listed.chunks, self._recipe.selection)

    def verdict_columns(self) -> VerdictColumns:
        """The verdicts as columns, decided without restoring a trajectory: 100,000 in seconds.

        Where nobody chose one of several models, `problem` says so, and nothing is raised. Raises StoreError, and
        UsageError for tokens that a tokenizer makes.
        """
        report = BatchReport(repeated=self._listed.repeated, shared_group_ids=self._listed.shared_group_ids)
        recipe = self._recipe
        # A plan knows no turns of parts that were left out unread.
        plan = self._plan if all(chunk.left_out is None for chunk in self._chunks) else None
        return verdict_columns(self._chunks, recipe.selection, recipe.scoring, recipe.builder, report, plan)

    def plan(self) -> Plan:
        """The reward and advantage of every turn: read at the first need, and kept."""
        if self._plan is None:
            self._plan = make_plan(self._chunks, self._recipe.selection, self._recipe.scoring)
        return self._plan

    def count(self) -> int:
        """Count the batches that each rank gets in an epoch. `len()` knows it afterwards.

        Tokens are read only for a `tokenizer` and for `token_facts`.

        `report` and a loaded state do not change. Raises StoreError.
        """
        if self._count is None:
            self.plan().several_models.check()
            layout, counted = self._recipe.layout, Batches(self._listed, self._recipe)
            counted._plan = self.plan()
            build = counted._planned(self.verdict_columns()) if self._recipe.builder.is_recorded else counted._of_chunk
            rounds = layout.rounds(counted._units(BatchReport(), deque(maxlen=0), build))
            keep_together = self._recipe.order.keep_together
            self._count = sum(not layout.is_dropped(batches, keep_together) for batches in rounds)
        return self._count

    def of_view(self, view: View) -> "Batches":
        """The same batches as exporters write them: what is trained is theirs to say, and so is an unusable reward."""
        scoring = replace(self._recipe.scoring, keeps_unusable=True)
        recipe = replace(self._recipe, selection=self._recipe.selection.of_view(view), scoring=scoring)
        return Batches(self._listed, recipe)

    def of_worker(self, worker: int, workers: int) -> "Batches":
        """The batches of one worker of several, each with a share of the trajectories of its own."""
        order = replace(self._recipe.order, worker=(worker, workers))
        return Batches(self._listed, replace(self._recipe, order=order))

    def _new_report(self) -> BatchReport:
        """The report of an iteration. Raises UsageError where nobody chose one of several models."""
        self.plan().several_models.check()
        self.report = BatchReport(
            no_final_reward=self.plan().no_final_reward.copy(),
            compared=self.plan().compared,
            mixed_version_groups=len(self.plan().mixed_version_groups),
            repeated=self._listed.repeated,
            shared_group_ids=self._listed.shared_group_ids,
        )
        return self.report

    def _of_rank(self, verdicts: VerdictColumns, report: BatchReport) -> _Build:
        """Build the sequences of this rank alone, and plan those of the others, which are counted but not read.

        Which are whose follows from their lengths: a first pass arranges the plans of all.
        """
        planned, start = self._planned(verdicts), self._start
        own: set[int] = set()
        layout = self._recipe.layout
        for batches in layout.rounds(self._units(BatchReport(), deque(maxlen=0), planned)):
            own |= {one.number for row in layout.own(batches) for one in row if isinstance(one, PlannedSequence)}
        self._start = self._position = start

        def build(chunk: Chunk, _: BatchReport) -> Iterator[tuple[int, Sequence[AnySequence]]]:
            built = dict(self._of_chunk(chunk, BatchReport(), own))
            for number, sequences in planned(chunk, report):
                yield number, built.pop(number, sequences)

        return build

    def _planned(self, verdicts: VerdictColumns) -> _Build:
        """Give what the columns say of sequences, in the place of these."""

        def build(chunk: Chunk, _: BatchReport) -> Iterator[tuple[int, Sequence[AnySequence]]]:
            for number in self._share(chunk.numbers):
                if number not in self.plan().skipped:
                    yield number, verdicts.sequences.of_row(number)

        return build

    def _units(self, report: BatchReport, positions: deque[_Position], build: _Build) -> Iterator[Unit]:
        """What shares a batch, from the start on; `positions` gets the position of each sequence."""
        start = self._position = self._start
        self._start = (0, 0)
        order, windows = self._recipe.order, self._recipe.order.windows(self._chunks)
        with WaitingGroups(self._last_windows(windows), self.plan().groups) as waiting:
            for number, window in enumerate(windows):
                if number < start[0] and order.keep_together != "group":
                    continue
                place = (number, 0)
                # No name holds a window's sequences, so that they are gone before the next are read.
                built = (each for chunk in window for each in build(chunk, report))
                for unit in order.arranged(self._of_window(number, built, waiting), number + 1):
                    places = [(number, place[1] + index) for index in range(len(unit))]
                    if place < start:
                        for sequence in unit:
                            report.skip(sequence.counts, GIVEN_BEFORE)
                    else:
                        positions.extend(places)
                        yield unit
                    place = (number, place[1] + len(unit))

    def _of_window(
        self, number: int, built: Iterable[tuple[int, Sequence[AnySequence]]], waiting: WaitingGroups
    ) -> list[Unit]:
        match self._recipe.order.keep_together:
            case "group":
                return list[Unit](waiting.whole(number, built))
            case "rollout":
                return [sequences for _, sequences in built if sequences]
            case None:
                return [[sequence] for _, sequences in built for sequence in sequences]

    def _of_chunk(
        self, chunk: Chunk, report: BatchReport, among: Container[int] | None = None
    ) -> Iterator[tuple[int, Sequence[AnySequence]]]:
        """The sequences of each selected trajectory, with its number."""
        for number, trajectory in self._selected(chunk, self._recipe.builder.wanted, report, among):
            yield number, self._build(number, trajectory, report).sequences

    def _last_windows(self, windows: Sequence[Sequence[Chunk]]) -> dict[int, int]:
        """The number of the window that has the last selected member of each group, where groups are kept together."""
        if self._recipe.order.keep_together != "group":
            return {}
        skipped, groups = self.plan().skipped, self.plan().groups
        return {
            groups[number]: place
            for place, window in enumerate(windows)
            for chunk in window
            for number in chunk.numbers
            if number not in skipped
        }

    def _build(self, number: int, trajectory: Trajectory, report: BatchReport) -> BuiltSequences:
        """The sequences of a selected trajectory, counted but for what is given of them."""
        built = self._recipe.builder.build(trajectory, self.plan().turn_rewards(number))
        report.count_built(trajectory, built)
        report.shared_steps += self.plan().shared_steps[number]
        return built

    def _selected(
        self, chunk: Chunk, wanted: Wanted, report: BatchReport, among: Container[int] | None = None
    ) -> Iterator[tuple[int, Trajectory]]:
        """This worker's trajectories of a chunk that are not skipped, with their numbers."""
        plan = self.plan()
        share = self._share(chunk.numbers)
        selected = [number for number in share if number not in plan.skipped and (among is None or number in among)]
        for number in share:
            if number in plan.skipped:
                report.count(Verdict(rollout_id="", skipped=plan.skipped[number]))
        if selected:
            for number, trajectory in zip(selected, chunk.read(wanted, selected), strict=True):
                yield number, prepared(trajectory, self._recipe.selection)

    def _share(self, numbers: range) -> Sequence[int]:
        """The trajectories of consecutive ones that are this worker's; of groups that are kept together all or none."""
        order, groups = self._recipe.order, self.plan().groups
        if order.keep_together != "group":
            return order.share(numbers)
        index, count = order.worker
        return [number for number in numbers if groups[number] % count == index]

    def _identity(self) -> dict[str, Any]:
        recipe = self._recipe
        kept = f"{recipe.selection} {recipe.scoring} {recipe.builder}"
        return {"dataset": self.plan().fingerprint, "order": repr(recipe.order), "kept": kept}


def _count(report: BatchReport, layout: Layout, batches: list[PackedRows], sequences: list[AnySequence]) -> None:
    """Count a round of batches."""
    report.batches += len(batches)
    report.padding += sum(map(layout.padding, batches))
    report.give(one.counts for one in sequences)
