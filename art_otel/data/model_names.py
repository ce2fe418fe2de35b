"""Model names: which names an option chooses, which are versions of one policy, and the versions' numbers.

    policy-v12      version 12 of `policy`          Qwen3-8B      no version: 8B is a size

Invariant: a size, a date or a hash is never read as a version number, and a model is a version only of a policy with
the same name.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

import msgspec

from art_otel.trajectories import PolicyVersions, Trajectory, versions_in

Names: TypeAlias = str | Iterable[str] | None
"""Names or globs; `!` excludes: `"policy"`, `["policy-*", "!*-judge"]`. `"*"` chooses all, None is no choice."""

ANOTHER_MODEL: Final = "another model"

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
"""The places of a version number in a name, the surest first. In each place the last number counts."""

HOW_TO_WRITE: Final = (
    "Write the number behind step, iter, checkpoint, epoch or v, as in step-12 and policy-v12, or alone between"
    " separators, as in 12 and policy-12"
)


def is_among(patterns: tuple[str, ...] | None, name: str | None) -> bool:
    """Whether patterns choose a name: one of them fits (if any has no `!`), and none with `!` fits.

    `("policy-*", "!*-judge")` chooses `policy-1`; `("!judge",)` chooses all but `judge`. An unknown name (None) is
    chosen by `*`, and by patterns that only exclude.
    """
    if patterns is None:
        return True
    chosen = [pattern for pattern in patterns if not pattern.startswith("!")]
    excluded = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    if name is None:
        return "*" in chosen or not chosen
    is_chosen = not chosen or any(fnmatchcase(name, pattern) for pattern in chosen)
    return is_chosen and not any(fnmatchcase(name, pattern) for pattern in excluded)


def version_number(version: str | None) -> int | None:
    """The number by which a version is compared with others; None if there is no clear number.

    | version | number |
    |---|---|
    | `12`, `step-12`, `policy-v12`, `qwen2.5:0012`, `policy-12-final` | 12 |
    | `Qwen3-8B-step-100-fp8`, `epoch=3-step=100.ckpt`, `v2/checkpoint-100/adapter`, `step-100-v2` | 100 |
    | `3f9a2c1`, `Qwen3-8B`, `policy-4bit`, `policy-int4`, `policy-8-bit`, `policy-Q4_0`, `SmolLM2-135M` | None |
    | `gpt-4o-2024-08-06`, `v1.2`, `qwen2.5`, `policy12`, `main` | None |

    A number without a separator before it may mean anything, and `1.2` has two numbers.
    """
    place = None if version is None else _place_of_number(version)
    return None if version is None or place is None else int(version[place])


def with_model_versions(trajectory: Trajectory, trained: str | None) -> Trajectory:
    """Set the policy version of calls to their request's model, if this names a version of the `trained` policy.

    Servers of LoRA adapters have one model name per version. If `policy-v12` is trained, calls of `policy-v11` and
    `policy-v12` get a version, a call of `gpt-4o` does not. A trajectory with any recorded version stays unchanged.
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
    """Whether two names are equal, or differ only in their version numbers."""
    if name == trained:
        return True
    place, of_trained = _place_of_number(name), _place_of_number(trained)
    return (
        place is not None
        and of_trained is not None
        and (name[: place.start], name[place.stop :]) == (trained[: of_trained.start], trained[of_trained.stop :])
    )


_ADAPTER: Final = re.compile(r"[-_:@/.](?:lora|adapter)(?:[-_:@/.].*)?$", re.IGNORECASE)
_VERSION: Final = re.compile(
    r"(?:@|(?:^|[-_:@/.])(?:v|version|(?:global[-_])?step|iter|epoch|ckpt|checkpoint)[-_.]?)\d+$", re.IGNORECASE
)


def policy_name(model: str) -> str:
    """The common name of all versions of a policy, and of all adapters of a base model.

    `policy-v12`, `policy@12` and `policy-step-12` are `policy`, `qwen-lora-7` is `qwen`; the provider's prefix of
    `openai/gpt-4o` is left out, a path is kept. `gpt-4` and `gpt-5` are two models: a number is a version only after a
    word such as `v` or `step`, or after `@`.
    """
    name = model.rpartition("/")[2] if model.count("/") == 1 else model
    return _VERSION.sub("", _ADAPTER.sub("", name))


def _place_of_number(version: str) -> slice | None:
    """The place of the number in a version; None if there is no number."""
    text = _NO_NUMBERS.sub(lambda found: "x" * len(found[0]), version)
    for pattern in _NUMBERS:
        if found := [*pattern.finditer(text)]:
            return slice(*found[-1].span(1))
    return None
