"""Stored plans: a plan is kept in a file beside its dataset, so that the next process need not plan again.

    _plan-<digest of parts, options and code>.bin

Invariant: a stored plan is never stale. The file's name is a digest of all that decides: the dataset's parts and their
valid rows, the options, and the source of the deciding code. Another dataset, option or version has another name. A
plan that cannot be read is made anew; a plan that cannot be written is not kept.

Only plans of large datasets in local folders are kept, and not with a user's function, which has no stable name.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from art_otel import calls, storage
from art_otel.data.advantages import name_of
from art_otel.data.choosing import SeveralModels
from art_otel.data.columns import Coded
from art_otel.data.decisions import SequenceCounts, SequenceOptions, TrainingDecisions
from art_otel.data.plan import Plan, Scoring, make_plan
from art_otel.data.selection import Selection
from art_otel.data.sources import Chunk
from art_otel.store import PLAN_PREFIX, RowGroup

_WORTHWHILE: Final = 5_000
"""The fewest rollouts whose plan is stored: fewer are planned as fast as a file is read."""

_DECIDING: Final = ("data", "store", "trajectories")
"""The packages whose code decides what is planned. Their source is part of the file's name."""

_KEPT: Final = 4
"""How many plans are kept beside a dataset, the newest ones: older ones are of other options or replaced datasets."""


def plan_of(
    chunks: Sequence[Chunk],
    selection: Selection,
    scoring: Scoring,
    options: SequenceOptions | None,
    *,
    whole: bool = False,
) -> Plan:
    """The plan of these chunks: the stored one, or a new one from `make_plan`, which is then stored."""
    whole = whole and any(chunk.left_out is not None for chunk in chunks)  # else both plans are equal: share one file
    path = _path(chunks, selection, scoring, options, whole=whole)
    plan = None if path is None else _read(path)
    if plan is None:
        plan = make_plan(chunks, selection, scoring, options, whole=whole)
        if path is not None:
            _write(path, plan)
    return plan


def _path(
    chunks: Sequence[Chunk],
    selection: Selection,
    scoring: Scoring,
    options: SequenceOptions | None,
    *,
    whole: bool,
) -> Path | None:
    """The path of the plan's file; None if such a plan is not stored."""
    groups = [chunk.stored for chunk in chunks if isinstance(chunk.stored, RowGroup)]
    folders = {Path(group.file).parent for group in groups}
    has_parts = len(groups) == len(chunks) and all(group.part and not group.group_ids for group in groups)
    if not has_parts or len(folders) != 1 or sum(group.rows for group in groups) < _WORTHWHILE:
        return None
    credit, advantage = scoring.credit, name_of(scoring.advantage)
    rule, code = credit.of_columns, _code()
    is_users = advantage is None and scoring.advantage is not None
    if code is None or rule is None or is_users or storage.is_url(groups[0].file):
        return None
    parts = [(chunk.name, chunk.version, group.superseded) for chunk, group in zip(chunks, groups, strict=True)]
    # A rule is a function of `credit`, or a functools.partial of one: its name and arguments identify it.
    credited = getattr(rule, "func", rule).__name__, getattr(rule, "args", ()), credit.per, credit.weights
    decides = (code, parts, str(selection), credited, advantage, scoring.zero_variance, str(options), whole)
    return folders.pop() / f"{PLAN_PREFIX}{sha256(repr(decides).encode()).hexdigest()[:32]}.bin"


@cache
def _code() -> str | None:
    """A digest of the source of the deciding modules; None if the source cannot be read, as in a zip file."""
    package = Path(calls.__file__).parent
    paths = [*package.glob("*.py"), *(path for name in _DECIDING for path in (package / name).rglob("*.py"))]
    try:
        return sha256(b"".join(path.read_bytes() for path in sorted(paths))).hexdigest()
    except OSError:
        return None


class _PlanFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a file: the plan without its arrays; `arrays` has the type, size and stored bytes of each."""

    refused: tuple[str | None, ...]
    unusable: dict[int, str]
    fingerprint: str
    no_final_reward: dict[str, int]
    several_rollouts: tuple[int, ...]
    several_completions: dict[str, int]
    compared: int
    mixed_version_groups: list[str]
    is_rewarded: bool
    has_groups: bool
    compares: bool
    arrays: dict[str, tuple[str, int, int]]


_ARRAYS: Final = (
    "turn_offsets", "reasons", "rewards", "advantages", "to_make", "sequence_offsets", "sequences", "turn_sampled",
    "turn_trained", "counted",
)  # fmt: skip
"""The fields of TrainingDecisions that are arrays."""
_CODEC: Final = "zstd"
_COUNTS: Final = ("altered", "counts", "token_rewards")
"""The fields of TrainingDecisions that map names to arrays."""


def _write(path: Path, plan: Plan) -> None:
    """Write a plan: one line of JSON, then each array, compressed. An OSError is ignored: the plan is not kept."""
    import pyarrow as pa  # noqa: PLC0415 # slow to load

    decisions, several = plan.decisions, plan.several_models
    arrays: dict[str, NDArray[Any]] = {name: getattr(decisions, name) for name in _ARRAYS}
    arrays |= {"groups": plan.groups, "refused": decisions.refused.codes}
    for kind in _COUNTS:
        counts: Mapping[str, NDArray[Any]] = getattr(decisions, kind)
        arrays |= {f"{kind} {name}": each for name, each in counts.items()}
    codec = pa.Codec(_CODEC)
    stored = {name: codec.compress(np.ascontiguousarray(each), asbytes=True) for name, each in arrays.items()}
    facts = _PlanFacts(
        refused=tuple(decisions.refused.values),
        unusable=dict(decisions.unusable),
        fingerprint=plan.fingerprint,
        no_final_reward=plan.no_final_reward,
        several_rollouts=several.rollouts,
        several_completions=several.completions,
        compared=plan.compared,
        mixed_version_groups=plan.mixed_version_groups,
        is_rewarded=plan.is_rewarded,
        has_groups=plan.has_groups,
        compares=plan.compares,
        arrays={name: (each.dtype.str, each.nbytes, len(stored[name])) for name, each in arrays.items()},
    )
    with suppress(OSError):
        storage.write(str(path), b"\n".join([msgspec.json.encode(facts), b"".join(stored.values())]))
        others = sorted(path.parent.glob(f"{PLAN_PREFIX}*"), key=lambda each: each.stat().st_mtime_ns)
        for other in others[:-_KEPT]:
            other.unlink(missing_ok=True)


def _read(path: Path) -> Plan | None:
    """Read the plan; None if there is no file, or if it cannot be read."""
    import pyarrow as pa  # noqa: PLC0415 # slow to load

    codec, arrays = pa.Codec(_CODEC), dict[str, NDArray[Any]]()
    try:
        line, _, content = path.read_bytes().partition(b"\n")
        facts, start = msgspec.json.decode(line, type=_PlanFacts), 0
        for name, (kind, size, stored) in facts.arrays.items():
            data = codec.decompress(memoryview(content)[start : start + stored], decompressed_size=size, asbytes=True)
            arrays[name] = np.frombuffer(data, kind)
            start += stored
        return _plan(facts, arrays)
    except (OSError, pa.ArrowException, msgspec.MsgspecError, LookupError, TypeError, ValueError):
        return None


def _plan(facts: _PlanFacts, arrays: Mapping[str, NDArray[Any]]) -> Plan:
    counts: dict[str, Any] = {
        kind: {name.removeprefix(f"{kind} "): each for name, each in arrays.items() if name.startswith(f"{kind} ")}
        for kind in _COUNTS
    }
    return Plan(
        decisions=TrainingDecisions(
            **{name: arrays[name] for name in _ARRAYS}
            | {"sequences": arrays["sequences"].reshape(-1, len(SequenceCounts._fields) - 1)},
            **counts,
            refused=Coded(arrays["refused"], facts.refused),
            unusable=facts.unusable,
        ),
        groups=arrays["groups"],
        fingerprint=facts.fingerprint,
        no_final_reward=Counter(facts.no_final_reward),
        several_models=SeveralModels(rollouts=facts.several_rollouts, completions=Counter(facts.several_completions)),
        compared=facts.compared,
        mixed_version_groups=facts.mixed_version_groups,
        is_rewarded=facts.is_rewarded,
        has_groups=facts.has_groups,
        compares=facts.compares,
    )
