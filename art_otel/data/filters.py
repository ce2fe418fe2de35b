"""Filters: choose rollouts by conditions (`where`), and divide them into parts without a common task (`split`).

    where="correctness>=0.5&difficulty=easy"      conditions of a name, a comparison and a value; all must hold
    split="0.9/0.1", part="val", seed=1           shares of the tasks: train and val, or train, val and test

A name is searched among the rewards of the whole rollout, then in its metadata, then among the trajectory's fields;
`rewards.NAME` and `metadata.NAME` name one place. A rollout without the value fulfills no condition.

Invariant: no task is in two parts. Two rollouts are of one task if they have a common rollout id, group id or prompt of
a history (its messages before the first sampled one, without system messages), directly or through other rollouts:

    rollout   group   first prompt
    a         g1      "1 + 2"         ─┐
    b         g1      "Compute 1+2"    ├ one task
    c         -       "Compute 1+2"   ─┘
    d         -       "3 + 4"           another
"""

import operator
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypedDict, Unpack, cast
from urllib.parse import unquote

from art_otel.data.choosing import choose_rollouts
from art_otel.data.conversation import MESSAGES
from art_otel.data.rewards import RewardOf, reward_of
from art_otel.data.selection import OPTIONS, OUTLINE, Selection, SelectionKeywords, listed_options
from art_otel.data.sources import Chunk, Sources, list_chunks, read_numbered
from art_otel.errors import UsageError
from art_otel.spans import Value
from art_otel.trajectories import Trajectory, histories

PARTS: Final = ("train", "val", "test")
_SHARES: Final = re.compile(r"\s*\d*\.?\d+(\s*/\s*\d*\.?\d+){1,2}\s*")
_CONDITION: Final = re.compile(r"([^<>=!]+)(>=|<=|!=|=|>|<)(.*)", re.DOTALL)
_NO_COMPARISON: Final = re.compile(r"[^<>=!]+([<>=!]{2,})")
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    ">=": operator.ge, "<=": operator.le, "!=": operator.ne, "=": operator.eq, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_FIELDS: Final = (
    "name", "status", "split", "group_id", "rollout_id", "trace_id", "attempt", "training_step", "reward", "complete",
)  # fmt: skip


class Candidates(TypedDict, total=False):
    """Options that decide which tasks are divided, and in which order."""

    reward: RewardOf
    min_reward: float | None
    seed: int


class Condition(NamedTuple):
    """A name, one of `_COMPARISONS`, and the value as text."""

    name: str
    comparison: str
    value: str

    def __str__(self) -> str:
        return f"{self.name}{self.comparison}{self.value}"

    @property
    def number(self) -> float | None:
        """The value as a number, `true` and `false` as 1 and 0; None where it is none."""
        number = {"true": 1.0, "false": 0.0}.get(self.value.lower())
        try:
            return float(self.value) if number is None else number
        except ValueError:
            return None

    @property
    def is_of_texts(self) -> bool:
        """Whether it asks what is before or behind a text."""
        return self.comparison not in ("=", "!=") and self.number is None


def read_conditions(text: str) -> list[Condition]:
    """Read conditions that are joined by `&`. Raises UsageError for a part that is no condition."""
    conditions: list[Condition] = []
    for part in text.split("&"):
        match, signs = _CONDITION.fullmatch(part), _NO_COMPARISON.match(part)
        if signs is not None and signs[1] not in _COMPARISONS:
            raise UsageError(f"where={part!r:.100}: {signs[1]!r:.20} is no comparison; use {', '.join(_COMPARISONS)}")
        if match is None or not match[1].strip():
            raise UsageError(
                f"where={part!r:.100}: write conditions such as NAME>=VALUE (>=, <=, >, <, = or !=), "
                "with & between them"
            )
        conditions.append(Condition(unquote(match[1]).strip(), match[2], unquote(match[3]).strip()))
    return conditions


def read_shares(split: object) -> tuple[tuple[float, ...] | None, object]:
    """The shares in a `split`, such as `0.9/0.1`, or None, and the other names in it. Raises UsageError."""
    names = [split] if isinstance(split, str) else split
    if not isinstance(names, Sequence):
        return None, split
    listed = cast("Sequence[object]", names)
    texts = [one for one in listed if isinstance(one, str) and _SHARES.fullmatch(one)]
    if not texts:
        return None, split
    shares = tuple(float(share) for share in texts[0].split("/"))
    if len(texts) > 1 or not all(shares) or not 0.999 <= sum(shares) <= 1.001:
        raise UsageError(
            f"split={'/'.join(texts)!r}: shares must be above 0 and add up to 1, as in 0.9/0.1 or 0.8/0.1/0.1"
        )
    return shares, [one for one in listed if one not in texts] or None


class TaskSplit(NamedTuple):
    """How tasks are divided: the share of each part, and the seed that orders the tasks."""

    shares: tuple[float, ...]
    seed: int = 0


def narrowed(sources: Sources, selection: SelectionKeywords, **candidates: Unpack[Candidates]) -> SelectionKeywords:
    """Replace `where`, shares and `part` by the `rollouts` that they choose. Raises UsageError."""
    kept, division = filtered(sources, selection, candidates.get("seed", 0))
    part = selection.get("part")
    if division is None:
        if part is not None:
            raise UsageError(f"part={part!r}: only shares have parts; also give split='0.9/0.1'")
        return kept
    parts = split_by_task(sources, division, kept, **candidates)
    if (part or PARTS[0]) not in parts:
        raise UsageError(f"part={part!r}: use one of {', '.join(parts)}")
    return {**kept, "rollouts": parts[part or PARTS[0]]}


def filtered(
    sources: Sources, selection: SelectionKeywords, seed: int = 0
) -> tuple[SelectionKeywords, TaskSplit | None]:
    """Replace `where` by the `rollouts` that it chooses; take the shares out of `split` and return them, too.

    Raises UsageError.
    """
    kept = SelectionKeywords(**listed_options(selection))
    where = kept.pop("where", None)
    kept.pop("part", None)
    shares, names = read_shares(kept.get("split"))
    if shares is not None:
        kept["split"] = cast("list[str] | None", names)
    if where is not None:
        kept["rollouts"] = _fulfilling(sources, where, kept.get("rollouts"))
    return kept, None if shares is None else TaskSplit(shares, seed)


def _fulfilling(sources: Sources, where: str, among: object) -> frozenset[str]:
    """The ids of the rollouts that fulfill all conditions. Raises UsageError for a name that nothing has."""
    conditions = read_conditions(where)
    ids: set[str] = set()
    rewards, metadata, is_empty = set[str](), set[str](), True
    known = {one.name for one in conditions if one.name in _FIELDS}
    textless = {one for one in conditions if one.is_of_texts}
    wanted = None if among is None else frozenset(cast("Sequence[str]", [among] if isinstance(among, str) else among))
    for trajectory in _outlines(list_chunks(sources).chunks):
        is_empty = False
        rewards.update(one.name for one in trajectory.rewards)
        metadata.update(trajectory.metadata)
        known.update(one.name for one in conditions if one.name not in known and _values(one.name, trajectory))
        textless -= {one for one in textless if any(isinstance(value, str) for value in _values(one.name, trajectory))}
        if all(_holds(one, trajectory) for one in conditions) and (wanted is None or trajectory.rollout_id in wanted):
            ids.add(trajectory.rollout_id)
    if missing := [one for one in conditions if one.name not in known and not is_empty]:
        raise UsageError(
            f"where={str(missing[0])!r}: no reward, metadata or field is named {missing[0].name!r}. The rewards are"
            f" {_listed(rewards)}; the metadata {_listed(metadata)}; the fields {', '.join(_FIELDS)}"
        )
    if textless and not is_empty:
        bad = next(one for one in conditions if one in textless)
        raise UsageError(
            f"where={str(bad)!r}: {bad.value!r:.100} is no number, and {bad.name!r} has no texts to compare with it"
        )
    return frozenset(ids)


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "(none)"


def _outlines(chunks: Sequence[Chunk]) -> Iterator[Trajectory]:
    for chunk in chunks:
        yield from chunk.read(OUTLINE)


def _values(name: str, trajectory: Trajectory) -> list[Value]:
    """The values that a rollout has under a name: several for a list, e.g. of tags; none if it is unknown."""
    kind, _, rest = name.partition(".")
    is_reward, is_metadata = kind in ("rewards", "reward") and rest, kind == "metadata" and rest
    if not is_metadata and (found := _reward(rest if is_reward else name, trajectory)):
        return found
    value: Value = None if is_reward else _nested(rest if is_metadata else name, trajectory.metadata)
    if value is None and not is_reward and not is_metadata:
        value = getattr(trajectory, name) if name in _FIELDS else trajectory.metrics.get(name)
    return [] if value is None else [*cast("list[Value]", value)] if isinstance(value, list | tuple) else [value]


def _reward(name: str, trajectory: Trajectory) -> list[Value]:
    """The number of the whole rollout's reward of this name, and the label of the last one."""
    number = reward_of(trajectory, name)
    whole = [one for one in trajectory.rewards if one.name == name and one.target is None and one.step is None]
    label = whole[-1].label if whole else None
    return [value for value in (number, label) if value is not None]


def _nested(name: str, metadata: Mapping[str, Value]) -> Value:
    """The metadata with a name, or at a path of names: "task.level" finds {"task": {"level": …}}."""
    if name in metadata:
        return metadata[name]
    first, _, rest = name.partition(".")
    inner = metadata.get(first)
    return _nested(rest, cast("Mapping[str, Value]", inner)) if rest and isinstance(inner, dict) else None


def _holds(condition: Condition, trajectory: Trajectory) -> bool:
    values = _values(condition.name, trajectory)
    compare = all if condition.comparison == "!=" else any  # tags!=x means that no tag is x
    return bool(values) and compare(_compared(value, condition) for value in values)


def _compared(value: Value, condition: Condition) -> bool:
    """Compare numbers as numbers (`true` and `false` are 1 and 0), and other values as texts."""
    comparison = _COMPARISONS[condition.comparison]
    given = condition.number
    if given is not None and isinstance(value, int | float):
        return comparison(float(value), given)
    if given is not None and isinstance(value, str):
        try:
            return comparison(float(value), given)
        except ValueError:
            return condition.comparison == "!="
    return comparison(str(value), condition.value) if isinstance(value, str) else condition.comparison == "!="


# Parts without a common task.


def split_by_task(
    sources: Sources, division: TaskSplit, selection: SelectionKeywords, **candidates: Unpack[Candidates]
) -> dict[str, frozenset[str]]:
    """The ids of the rollouts of each part, by the names in `PARTS`. Each part has at least one task.

    Divided are the tasks with a chosen rollout whose reward is high enough; the other rollouts are in the part of
    their task, or in the first part, so that the reasons against them are counted. The parts depend only on the seed
    and the tasks. Raises UsageError if there are fewer tasks than parts.
    """
    chunks, among = list_chunks(sources).chunks, selection.get("rollouts")
    of_text = cast("dict[str, Any]", {name: one for name, one in selection.items() if not OPTIONS[name].only_of_ids})
    chosen = choose_rollouts(chunks, Selection(view="text", **of_text)).reasons
    wanted = None if among is None else frozenset([among] if isinstance(among, str) else among)
    least = candidates.get("min_reward")
    parents: dict[Hashable, Hashable] = {}

    def root(node: Hashable) -> Hashable:  # of a disjoint set, whose paths are halved on the way
        while (parent := parents.setdefault(node, node)) != node:
            parents[node] = node = parents[parent]
        return node

    rollouts: dict[str, bool] = {}  # whether any recording of the rollout is chosen and has a high enough reward
    for number, trajectory in read_numbered(chunks, MESSAGES):
        if wanted is not None and trajectory.rollout_id not in wanted:
            continue
        reward = None if least is None else reward_of(trajectory, candidates.get("reward"))
        is_good = number in chosen and (least is None or (reward is not None and reward >= least))
        rollouts[trajectory.rollout_id] = rollouts.get(trajectory.rollout_id, False) or is_good
        for mark in _task_marks(trajectory):
            low, high = sorted((root(("rollout", trajectory.rollout_id)), root(mark)), key=repr)
            parents[high] = low
    tasks: dict[Hashable, list[str]] = {}
    for rollout_id in rollouts:
        tasks.setdefault(root(("rollout", rollout_id)), []).append(rollout_id)
    shared = [task for task, members in tasks.items() if any(rollouts[one] for one in members)]
    if len(shared) < len(division.shares):
        raise UsageError(
            f"split={'/'.join(f'{share:g}' for share in division.shares)}: these shares need"
            f" {len(division.shares)} tasks (groups, or first prompts), because a task is never in two parts; the"
            f" chosen rollouts have {len(shared)}. Choose more rollouts, or write one file"
        )
    counts = [max(1, round(share * len(shared))) for share in division.shares[1:]]
    while sum(counts) >= len(shared):
        counts[counts.index(max(counts))] -= 1
    order = sorted(shared, key=lambda task: blake2b(f"{division.seed} {task!r}".encode(), digest_size=16).digest())
    parts: dict[str, frozenset[str]] = {}
    for name, count in zip(PARTS[1:], counts, strict=False):
        parts[name] = frozenset(rollout_id for task in order[:count] for rollout_id in tasks[task])
        order = order[count:]
    return {PARTS[0]: frozenset(rollouts).difference(*parts.values()), **parts}


def _task_marks(trajectory: Trajectory) -> Iterator[Hashable]:
    """Keys of the trajectory's task: rollouts with a common key are of one task."""
    if trajectory.group_id is not None:
        yield "group", trajectory.group_id
    for history in histories(trajectory):
        if history.messages is None:
            ids = trajectory.calls[trajectory.turns[history.turns[0]].call].prompt_token_ids if history.turns else None
            if ids is not None:
                yield "ids", blake2b(ids.data, digest_size=16).hexdigest()
            continue
        sampled = next((at for at, one in enumerate(history.messages) if one.turn is not None), len(history.messages))
        prompt = [one.message.identity for one in history.messages[:sampled]]
        asked = [one for one in prompt if one[0] not in ("system", "developer")]
        yield "prompt", blake2b(repr(asked or prompt).encode(errors="surrogatepass"), digest_size=16).hexdigest()
