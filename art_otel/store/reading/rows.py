"""Rows: which trajectories of a dataset are wanted, by what a manifest knows of each part.

Invariant: a part that is passed over has none of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Self, TypeVar, cast

import msgspec

from art_otel.errors import UsageError
from art_otel.store.dataset.manifest import Part

_ItemT = TypeVar("_ItemT", str, int)


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """The splits and training steps of the wanted rows; None is any, None among them a row without one."""

    splits: frozenset[str | None] | None = None
    training_steps: frozenset[int | None] | None = None

    @classmethod
    def of(cls, split: object, training_step: object) -> Self:
        """Make it of one value or several, as callers write them. Raises UsageError."""
        return cls(splits=_chosen("split", split, str), training_steps=_chosen("training_step", training_step, int))

    @property
    def columns(self) -> list[str]:
        """The columns that say whether a row is wanted; none where all are."""
        chosen = {"split": self.splits, "training_step": self.training_steps}
        return [name for name, values in chosen.items() if values is not None]

    def among(self, rows: Sequence[Mapping[str, object]]) -> list[int]:
        """Say which of these rows, with `columns`, are wanted."""
        return [number for number, row in enumerate(rows) if self._has(row)]

    def why_none_of(self, part: Part) -> str | None:
        """What of a part's rows is not wanted; None where some may be."""
        if self.splits is not None and self.splits.isdisjoint(part.splits):
            return "split"
        steps, bounds = self.training_steps, part.training_step
        if steps is None or None in steps:  # bounds do not tell whether some rows have no step
            return None
        if bounds is None or not any(step is not None and bounds[0] <= step <= bounds[1] for step in steps):
            return "training step"
        return None

    def _has(self, row: Mapping[str, object]) -> bool:
        return (self.splits is None or row["split"] in self.splits) and (
            self.training_steps is None or row["training_step"] in self.training_steps
        )


def _chosen(name: str, value: object, kind: type[_ItemT]) -> frozenset[_ItemT | None] | None:
    if value is None:
        return None
    several = cast(Iterable[object], value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    items = frozenset(several)
    if not all(item is None or (isinstance(item, kind) and not isinstance(item, bool)) for item in items):
        raise UsageError(f"{name}={value!r:.200}: give one or several, each {kind.__name__} or None")
    return cast(frozenset[_ItemT | None], items)
