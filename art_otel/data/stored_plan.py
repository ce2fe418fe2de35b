"""Stored plans: what was planned of a dataset lies beside it, so that the next process has it at once.

Invariant: a plan that is found is the one that would be made. Its file is named by all that decides: the parts of the
dataset with the rows of them that count, the options, and the code that decides. So it is never stale: what another
commit, option or version would decide has another name. A file is there whole or not at all, and whoever writes one
with the same name writes the same. A plan that cannot be read is made anew, one that cannot be written is not kept.

Planned are datasets of many rollouts in folders of this machine; functions of a user have no name to be found by.
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
"""Fewer rollouts are planned about as fast as a file is found."""

_DECIDING: Final = ("data", "store", "trajectories")
"""The packages whose code decides what is planned."""

_KEPT: Final = 4
"""So many plans stay beside a dataset, the newest: those of other options, and those of datasets that were replaced."""


def plan_of(
    chunks: Sequence[Chunk],
    selection: Selection,
    scoring: Scoring,
    options: SequenceOptions | None,
    *,
    whole: bool = False,
) -> Plan:
    """The plan of these chunks: that which lies beside the dataset, or a new one, as `make_plan` makes it."""
    whole = whole and any(chunk.left_out is not None for chunk in chunks)  # else it is the same plan
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
    """Where the plan lies, or would; None where none is kept."""
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
    # A rule is a function of `credit`, or such a function with arguments.
    credited = getattr(rule, "func", rule).__name__, getattr(rule, "args", ()), credit.per, credit.weights
    decides = (code, parts, str(selection), credited, advantage, scoring.zero_variance, str(options), whole)
    return folders.pop() / f"{PLAN_PREFIX}{sha256(repr(decides).encode()).hexdigest()[:32]}.bin"


@cache
def _code() -> str | None:
    """A digest of the modules that decide; None where their source is not at hand."""
    package = Path(calls.__file__).parent
    paths = [*package.glob("*.py"), *(path for name in _DECIDING for path in (package / name).rglob("*.py"))]
    try:
        return sha256(b"".join(path.read_bytes() for path in sorted(paths))).hexdigest()
    except OSError:
        return None


class _PlanFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a file: what a plan is beside its arrays; of these the type, the size, and the bytes here."""

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
"""Columns of TrainingDecisions that are arrays."""
_CODEC: Final = "zstd"
_COUNTS: Final = ("altered", "counts", "token_rewards")
"""Those that are several, by names."""


def _write(path: Path, plan: Plan) -> None:
    """Keep a plan: a line of JSON, and behind it each array, compressed. What the folder refuses is no error."""
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
    """The plan that lies there; None where there is none, or none that can be read."""
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
