"""Batches: a dataset as a stream of numpy batches.

    chunks ─► windows ─► sequences ─► units (share a batch) ─► rounds (one batch per rank) ─► arrays

Invariant: the same sources and options give the same batches in the same order, from the beginning and from a saved
state. Memory has a window of row groups, one batch for each rank, and the plan. If groups are kept together, sequences
that wait for other members of their group are on disk, and a saved state is reached by reading from the beginning.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from art_otel.data.arranging import Batch, Layout, ShuffleOrder, Unit, WaitingGroups
from art_otel.data.decisions import SequenceOptions, TrainingDecisions, TurnReward
from art_otel.data.model_names import with_model_versions
from art_otel.data.options import validate
from art_otel.data.plan import Plan, Scoring, warn
from art_otel.data.report import BatchReport, names_given, warn_of_no_comparison, warn_of_nothing
from art_otel.data.rewards import UNUSABLE, token_rewards
from art_otel.data.selection import Selection, View
from art_otel.data.sequences import Decision, MakeHistories, PlannedSequence, TokenSequence, build_sequences
from art_otel.data.sources import Chunk, ListedChunks, read_ids
from art_otel.data.stored_plan import plan_of
from art_otel.errors import UsageError
from art_otel.notebook import MOST_SHOWN, page_html
from art_otel.store import Wanted
from art_otel.trajectories import TokenHistory, Trajectory

_ALL: Final = Wanted()
GIVEN_BEFORE: Final = "given before"
LAST_BATCH: Final = "last batch dropped"
_NONE: Final[tuple[int, list[TokenSequence]]] = (-1, [])

_Give: TypeAlias = Callable[[Chunk], Iterator[tuple[int, Unit]]]
"""Gives the number and the sequences of each trajectory of a chunk that has sequences."""
_Position: TypeAlias = tuple[int, int]  # a window, and a sequence in it
_NaturalNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class _LoaderState(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a stream (window, and sequence in the window), and digests that identify the stream."""

    dataset: str
    order: str
    kept: str
    window: _NaturalNumber
    sequence: _NaturalNumber


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """All options of batches, checked: selection, rewards, sequences, order and layout.

    `make_histories` makes token histories of messages; None without a tokenizer.
    """

    selection: Selection
    scoring: Scoring
    sequences: SequenceOptions
    make_histories: MakeHistories | None
    order: ShuffleOrder
    layout: Layout


class Batches:
    """Batches of trajectories. You can iterate over them as often as you like.

    `report` counts what the latest iteration has given and skipped so far.
    """

    def __init__(self, listed: ListedChunks, recipe: Recipe) -> None:
        self._listed = listed
        self._chunks = listed.chunks
        self._recipe = recipe
        self._plan: Plan | None = None
        self._whole: Plan | None = None
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
                "the number of batches is only known after the tokens of the files have been read once: iterate to "
                "the end, or call count(), which reads them without making batches"
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
        # With a tokenizer, lengths are known only after tokenizing, so every rank must build all sequences.
        own = None if layout.world_size == 1 or self._recipe.make_histories is not None else self._of_rank()
        give = partial(self._sequences, own=own, report=report)
        for batches in layout.rounds(self._units(report, positions, give)):
            sequences = [sequence for rows in batches for row in rows for sequence in row]
            window, last = [positions.popleft() for _ in sequences][-1]
            self._position = (window, last + 1)
            if layout.is_dropped(batches, self._recipe.order.keep_together):
                for sequence in sequences:
                    report.skip(sequence.counts, LAST_BATCH)
                break  # it was the last round
            report.batches += len(batches)
            report.padding += sum(map(layout.padding, batches))
            report.give(one.counts for one in sequences)
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
            raise UsageError(f"state={state!r:.200}: give the result of state_dict() of earlier batches")
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise UsageError(f"state: its {name} is {state.get(name)!r}, that of these batches {value!r}")
        checked = validate(_LoaderState, state, owner="state")
        self._start = self._position = (checked.window, checked.sequence)

    def sequences(self) -> Iterator[TokenSequence]:
        """Give the sequences of all ranks one by one, in the order of the batches. Raises StoreError."""
        report = self._new_report()
        for unit in self._units(report, deque(), partial(self._sequences, report=report)):
            for sequence in unit:
                report.give([sequence.counts])
                if sequence.built is not None:
                    yield sequence.built

    def sequences_by_trajectory(self) -> Iterator[list[TokenSequence]]:
        """Give the sequences of each trajectory that has some together, in the order of `trajectories()`.

        Raises StoreError.
        """
        report = self._new_report()
        for window in self._recipe.order.windows(self._chunks):
            for chunk in window:
                for _, sequences in self._sequences(chunk, report=report):
                    report.give(one.counts for one in sequences)
                    yield [one.built for one in sequences if one.built is not None]

    def trajectories(self, wanted: Wanted = _ALL) -> Iterator[tuple[Trajectory, tuple[TurnReward, ...]]]:
        """Give the selected trajectories, with what each of their turns is trained with. Raises StoreError.

        A trajectory with an unusable reward is left out if nothing of it is trained; but not where text is trained.
        """
        report = self._new_report()
        for window in self._recipe.order.windows(self._chunks):
            for chunk in window:
                numbers = self._share(chunk.numbers)
                decisions = self.plan().decisions.of(numbers)
                skipped = list(decisions.refused)
                if self._recipe.selection.view != "text":
                    skipped = [
                        UNUSABLE if reason is None and is_unusable else reason
                        for reason, is_unusable in zip(skipped, decisions.is_unusable.tolist(), strict=True)
                    ]
                report.trajectories += len(skipped)
                report.trajectories_used += skipped.count(None)
                report.trajectories_skipped.update(reason for reason in skipped if reason is not None)
                turns = {
                    number: one.turns
                    for number, reason, one in zip(numbers, skipped, decisions.each(), strict=True)
                    if reason is None
                }
                for number, trajectory in self._read(chunk, wanted, list(turns)):
                    yield trajectory, turns[number]

    def decisions(self) -> Iterator[Decision]:
        """Give the decision on each trajectory, in the order of the sources: what is trained, and why the rest is not.

        `report` has the sums of the decisions. Raises StoreError.
        """
        report = self._new_report()
        ids = read_ids(self._chunks, range(sum(chunk.rows for chunk in self._chunks)))
        for chunk in self._chunks:
            decided: dict[int, Decision] = {}
            for numbers, decisions, _ in self._decided(chunk, chunk.numbers):
                report.count(decisions)
                of_rows = (numbers, decisions.each(), decisions.skipped, decisions.refused.known.tolist())
                for number, (turns, sequences), skipped, is_refused in zip(*of_rows, strict=True):
                    report.give(sequences)
                    completions = () if is_refused else tuple([turn.skipped for turn in turns])
                    decided[number] = Decision(rollout_id=ids[number], skipped=skipped, completions=completions)
            yield from (decided[number] for number in chunk.numbers)

    def build(self, trajectory: Trajectory, turns: Sequence[TurnReward]) -> list[TokenSequence]:
        """Build the sequences of a selected trajectory from the decisions on its turns."""
        versioned = with_model_versions(trajectory, self._recipe.selection.version)
        return build_sequences(versioned, turns, self._recipe.sequences)

    def names_given(self) -> list[str]:
        """The names of the rewards of selected trajectories, with the kind of their target. Raises StoreError."""
        return names_given(self._listed.chunks, self._recipe.selection)

    def decision_columns(self) -> TrainingDecisions:
        """The decisions on all trajectories, also those of parts that are left out, as columns: 100,000 take seconds.

        `report` has the sums. Rollouts of several models raise no error here: see `problem`. Raises StoreError, and
        UsageError with a tokenizer, whose sequences are not known before they are made.
        """
        if self._recipe.make_histories is not None:
            raise UsageError(
                "tokenizer: its sequences are only decided one by one, when they are made; use decisions()"
            )
        plan = self._whole_plan()
        self.report = self._report_of(plan)
        self.report.count(plan.decisions)
        self.report.give_all(plan.decisions)
        return plan.decisions

    @property
    def problem(self) -> str | None:
        """What the user must choose before anything can be trained, as a message, or None. Raises StoreError."""
        return self._whole_plan().several_models.problem

    def plan(self) -> Plan:
        """The reward and advantage of every turn: made when it is first needed, then kept."""
        if self._plan is None:
            self._plan = self._make_plan(whole=False)
        return self._plan

    def count(self) -> int:
        """Count the batches that each rank gets in an epoch. `len()` knows it afterwards.

        Tokens are read only for a `tokenizer`.

        `report` and a loaded state do not change. Raises StoreError.
        """
        if self._count is None:
            self.plan().several_models.check()
            layout, counted = self._recipe.layout, Batches(self._listed, self._recipe)
            counted._plan = self.plan()
            give = partial(counted._sequences, own=())
            rounds = layout.rounds(counted._units(BatchReport(), deque(maxlen=0), give))
            keep_together = self._recipe.order.keep_together
            self._count = sum(not layout.is_dropped(batches, keep_together) for batches in rounds)
        return self._count

    def of_view(self, view: View) -> "Batches":
        """The same batches with another view: an exporter decides whether it trains token ids or text."""
        recipe = replace(self._recipe, selection=self._recipe.selection.of_view(view))
        return Batches(self._listed, recipe)

    def of_worker(self, worker: int, workers: int) -> "Batches":
        """The batches of one worker of several, each with a share of the trajectories of its own."""
        order = replace(self._recipe.order, worker=(worker, workers))
        return Batches(self._listed, replace(self._recipe, order=order))

    def _whole_plan(self) -> Plan:
        """The plan that also has the parts which the usual plan leaves out unread."""
        if all(chunk.left_out is None for chunk in self._chunks):
            self._plan = self._plan or self._make_plan(whole=True)
            return self._plan
        self._whole = self._whole or self._make_plan(whole=True)
        return self._whole

    def _make_plan(self, *, whole: bool) -> Plan:
        recipe = self._recipe
        gives_sequences = recipe.make_histories is not None or recipe.selection.view == "tokens"
        options = recipe.sequences if gives_sequences else None
        plan = plan_of(self._chunks, recipe.selection, recipe.scoring, options, whole=whole)
        if recipe.scoring.advantage is not None and not whole:
            warn(plan)
        return plan

    def _new_report(self) -> BatchReport:
        """A new report for an iteration. Raises UsageError if a rollout has several models and none is chosen."""
        self.plan().several_models.check()
        self.report = self._report_of(self.plan())
        return self.report

    def _report_of(self, plan: Plan) -> BatchReport:
        return BatchReport(
            no_final_reward=plan.no_final_reward.copy(),
            compared=plan.compared,
            mixed_version_groups=len(plan.mixed_version_groups),
            repeated=self._listed.repeated,
            shared_group_ids=self._listed.shared_group_ids,
        )

    def _of_rank(self) -> frozenset[int]:
        """The numbers of the trajectories whose sequences this rank gives, so that it builds only these.

        They depend on the lengths of all sequences, so a first pass arranges all of them without building any.
        """
        start, layout = self._start, self._recipe.layout
        rounds = layout.rounds(self._units(BatchReport(), deque(maxlen=0), partial(self._sequences, own=())))
        own = frozenset(one.number for batches in rounds for row in layout.own(batches) for one in row)
        self._start = self._position = start
        return own

    def _units(self, report: BatchReport, positions: deque[_Position], give: _Give) -> Iterator[Unit]:
        """The units from the start position on. The position of each given sequence is appended to `positions`."""
        start = self._position = self._start
        self._start = (0, 0)
        order, windows = self._recipe.order, self._recipe.order.windows(self._chunks)
        with WaitingGroups(self._last_windows(windows), self.plan().groups) as waiting:
            for number, window in enumerate(windows):
                if number < start[0] and order.keep_together != "group":
                    continue
                place = (number, 0)
                # No variable refers to a window's sequences, so that they are freed before the next window is read.
                given = (each for chunk in window for each in give(chunk))
                for unit in order.arranged(self._of_window(number, given, waiting), number + 1):
                    places = [(number, place[1] + index) for index in range(len(unit))]
                    if place < start:
                        for sequence in unit:
                            report.skip(sequence.counts, GIVEN_BEFORE)
                    else:
                        positions.extend(places)
                        yield unit
                    place = (number, place[1] + len(unit))

    def _of_window(self, number: int, given: Iterable[tuple[int, Unit]], waiting: WaitingGroups) -> Iterable[Unit]:
        match self._recipe.order.keep_together:
            case "group":
                return waiting.whole(number, given)
            case "rollout":
                return (sequences for _, sequences in given)
            case None:
                return ([sequence] for _, sequences in given for sequence in sequences)

    def _sequences(
        self, chunk: Chunk, *, own: Container[int] | None = None, report: BatchReport | None = None
    ) -> Iterator[tuple[int, Unit]]:
        """The number and the sequences of each of this worker's trajectories of a chunk that has sequences.

        Only trajectories in `own` (None: all) are read and their sequences built; of the others the lengths are known
        from the decisions. `report` counts the decisions.
        """
        options = self._recipe.sequences
        for numbers, decisions, made in self._decided(chunk, self._share(chunk.numbers)):
            if report is not None:
                report.count(decisions)
            decided = {number: one for number, one in zip(numbers, decisions.each(), strict=True) if one.sequences}
            if made is None:
                read = self._read(chunk, options.wanted, [one for one in decided if own is None or one in own])
                built = ((number, build_sequences(one, decided[number].turns, options)) for number, one in read)
            else:
                built = ((one, build_sequences(made[0], decided[one].turns, options, made[1])) for one in decided)
            number, sequences = next(built, _NONE)
            for each, (_, counts) in decided.items():
                if each == number:
                    yield each, [PlannedSequence(each, *one) for one in zip(counts, sequences, strict=True)]
                    number, sequences = next(built, _NONE)
                else:
                    yield each, [PlannedSequence(each, one) for one in counts]

    def _decided(
        self, chunk: Chunk, numbers: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], TrainingDecisions, tuple[Trajectory, Sequence[TokenHistory]] | None]]:
        """The decisions on these trajectories of a chunk, all at once.

        With a tokenizer one trajectory at a time, together with the trajectory and the histories made of its messages.
        """
        decisions, make = self.plan().decisions, self._recipe.make_histories
        if make is None:
            yield numbers, decisions.of(numbers), None
            return
        refused = self.plan().skipped
        if left_out := [number for number in numbers if number in refused]:
            yield left_out, decisions.of(left_out), None
        options = self._recipe.sequences
        for number, one in self._read(chunk, options.wanted, [each for each in numbers if each not in refused]):
            made, skipped = make(one)
            rewarded = frozenset(token_rewards(one, options.weights) if options.weights else ())
            decided = decisions.of([number]).made_of(made, skipped, rewarded, options, one.rollout_id)
            yield [number], decided, (one, made)

    def _read(self, chunk: Chunk, wanted: Wanted, numbers: Sequence[int]) -> Iterator[tuple[int, Trajectory]]:
        """Read these trajectories of a chunk, each with its number.

        Without any recorded policy version, calls get the versions that their request's models name (`model_names`).
        """
        if numbers:
            for number, trajectory in zip(numbers, chunk.read(wanted, numbers), strict=True):
                yield number, with_model_versions(trajectory, self._recipe.selection.version)

    def _last_windows(self, windows: Sequence[Sequence[Chunk]]) -> dict[int, int]:
        """The number of the window with each group's last selected member; empty if groups are not kept together."""
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

    def _share(self, numbers: range) -> Sequence[int]:
        """The trajectories of this worker among consecutive ones; a group that is kept together has one worker."""
        order, groups = self._recipe.order, self.plan().groups
        if order.keep_together != "group":
            return order.share(numbers)
        index, count = order.worker
        return [number for number in numbers if groups[number] % count == index]

    def _identity(self) -> dict[str, Any]:
        recipe = self._recipe
        kept = f"{recipe.selection} {recipe.scoring} {recipe.sequences}"
        return {"dataset": self.plan().fingerprint, "order": repr(recipe.order), "kept": kept}
