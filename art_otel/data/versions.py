"""Versions: the number of a policy version, and request models whose names are versions.

Invariant: a number is one only where the text shows it. A size, a date or a hash is never read as one, and a model is a
version only of a policy that has its name.
"""

import re
from dataclasses import replace
from typing import Final

import msgspec

from art_otel.trajectories import PolicyVersions, Trajectory, versions_in

_NO_NUMBERS: Final = re.compile(
    r"(?<!\d)\d{4}([-_.])\d\d\1\d\d(?!\d)"  # 2024-08-06
    r"|(?<!\d)\d+[-_ ]bits?(?![a-z])"  # 4-bit
    r"|q\d_\d"  # Q4_0
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",  # a UUID
    re.IGNORECASE,
)
_NUMBER: Final = r"(\d{1,18})(?![0-9a-z]|\.\d)"
_NUMBERS: Final = tuple(
    re.compile(rf"(?<![0-9a-z])(?<!\d\.){before}{_NUMBER}", re.IGNORECASE)
    for before in (
        r"(?:(?:global[-_ ]?)?step|iter(?:ation)?|checkpoint|ckpt)[-_ .:=/]{0,2}",
        r"epoch[-_ .:=/]{0,2}",
        r"v(?:er(?:sion)?)?[-_ .:=/]{0,2}",
        "",
    )
)
"""Where a number stands, the best place first; the last one there counts."""

HOW_TO_WRITE: Final = (
    "Write the number behind step, iter, checkpoint, epoch or v, as in step-12 and policy-v12, or alone between"
    " separators, as in 12 and policy-12"
)


def version_number(version: str | None) -> int | None:
    """The number by which a version is compared with others; None where it has none.

    | version | number |
    |---|---|
    | `12`, `step-12`, `policy-v12`, `qwen2.5:0012`, `policy-12-final` | 12 |
    | `Qwen3-8B-step-100-fp8`, `epoch=3-step=100.ckpt`, `v2/checkpoint-100/adapter`, `step-100-v2` | 100 |
    | `3f9a2c1`, `Qwen3-8B`, `policy-4bit`, `policy-int4`, `policy-8-bit`, `policy-Q4_0`, `SmolLM2-135M` | None |
    | `gpt-4o-2024-08-06`, `v1.2`, `qwen2.5`, `policy12`, `main` | None |

    A number glued to other letters may be anything, and numbers with points between them are several.
    """
    place = None if version is None else _place_of_number(version)
    return None if version is None or place is None else int(version[place])


def with_model_versions(trajectory: Trajectory, trained: str | None) -> Trajectory:
    """Give calls the name of their request model as version, where it is one of the policy that is `trained`.

    Servers of LoRA adapters have a name a version. Of calls of `policy-v11`, `policy-v12` and `gpt-4o`, the first two
    are of versions of `policy-v12`. Where anybody said a version, or no model has such a name, nothing changes.
    """
    if trained is None or any(version is not None for version in versions_in(trajectory)):
        return trajectory
    named = [call.request_model for call in trajectory.calls]
    versions = [name if name is not None and is_version_of(name, trained) else None for name in named]
    known = [version for version in versions if version is not None]
    if not known:
        return trajectory
    calls = [
        msgspec.structs.replace(call, policy_version=version)
        for call, version in zip(trajectory.calls, versions, strict=True)
    ]
    return replace(trajectory, calls=tuple(calls), policy_version=PolicyVersions(first=known[0], last=known[-1]))


def is_version_of(name: str, trained: str) -> bool:
    """Whether two names are one, or differ only in their numbers."""
    if name == trained:
        return True
    place, of_trained = _place_of_number(name), _place_of_number(trained)
    return (
        place is not None
        and of_trained is not None
        and (name[: place.start], name[place.stop :]) == (trained[: of_trained.start], trained[of_trained.stop :])
    )


def _place_of_number(version: str) -> slice | None:
    """Where the number stands in a version; None where there is none."""
    text = _NO_NUMBERS.sub(lambda found: "x" * len(found[0]), version)
    for pattern in _NUMBERS:
        if found := [*pattern.finditer(text)]:
            return slice(*found[-1].span(1))
    return None
