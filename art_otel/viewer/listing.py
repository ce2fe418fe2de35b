"""Listing: the trajectories that a filter leaves, in an order, a page at a time.

Invariant: filters are joined by "and"; rows without a value come last in every order, and rows of equal values stand in
the order of the data. Without an order the newest come first.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from art_otel.errors import UsageError
from art_otel.trajectories import trajectory_json
from art_otel.viewer.addresses import decode_group_key
from art_otel.viewer.judging import DEFAULTS, Judgement, PlanOptions
from art_otel.viewer.rollout import show_rows
from art_otel.viewer.snapshot import Snapshot

MOST_ROWS: Final = 200
_MOST_KEYS: Final = 3
_MOST_SAVED: Final = 1_000
"""Rollouts of a saved selection, which the browser has in memory."""

_SORTS: Final = {
    "reward": "reward", "started": "started_at", "name": "name", "rollout": "rollout_id",
    "step": "shown_training_step",
}  # fmt: skip
PLACE: Final = ("at", "focus")
"""What else the address of the page's list holds: how far it is scrolled."""
_COUNTED: Final = ("calls", "turns", "tokens", "trained", "duration")


def list_page(snapshot: Snapshot, query: Mapping[str, str]) -> dict[str, Any]:
    """A page of rows. Raises UsageError for a filter, order or page that does not exist."""
    rows = list_rows(snapshot, query)
    offset, limit = _number(query, "offset", 0), min(_number(query, "limit", MOST_ROWS), MOST_ROWS)
    page = rows[offset : offset + limit]
    return {"total": len(rows), "offset": offset, "rows": show_rows(snapshot, page, _options(query))}


def list_selection(snapshot: Snapshot, query: Mapping[str, str]) -> dict[str, Any]:
    """The ids of all rows that the query asks for, or the first of their rollouts as JSON. Raises UsageError."""
    rows = list_rows(snapshot, query)
    match query.get("what"):
        case "ids":
            lines = [record["rollout_id"] for record in snapshot.outlines.records(rows)]
        case "rollouts":
            lines = [trajectory_json(one) for one in snapshot.read(rows[:_MOST_SAVED].tolist())]
        case what:
            raise UsageError(f"what={what!r:.50}: use ids or rollouts")
    return {"total": len(rows), "lines": lines}


def list_rows(snapshot: Snapshot, query: Mapping[str, str]) -> NDArray[np.int64]:
    """The numbers of the rows that the query asks for, in its order."""
    order = _order(snapshot, query)
    return order[_filtered(snapshot, query)[order]]


def read_address(address: str) -> dict[str, str]:
    """The query of a list's address: what stands behind `#/t?`, or the query alone.

    Raises UsageError for what the list does not know, which would otherwise choose nothing.
    """
    _, is_address, behind = address.partition("#/t?")
    query = dict(parse_qsl(behind if is_address else address, keep_blank_values=True))
    known = (*_FILTERS, "sort", "order", "plan")
    for name in query:
        if name not in known and name not in PLACE:
            raise UsageError(f"--where {name}: is nothing that chooses rollouts; use {', '.join(known)}")
    return query


def _filtered(snapshot: Snapshot, query: Mapping[str, str]) -> NDArray[np.bool_]:
    matches = np.ones(len(snapshot.outlines), np.bool_)
    for name, matching in _FILTERS.items():
        if query.get(name) or (name == "split" and name in query):
            matches &= matching(snapshot, query)
    return matches


def _complete(snapshot: Snapshot, query: Mapping[str, str]) -> NDArray[np.bool_]:
    if query["complete"] not in ("yes", "no"):
        raise UsageError(f"complete={query['complete']!r:.50}: use yes or no")
    return snapshot.outlines.equal("complete", query["complete"] == "yes")


def _in_source(snapshot: Snapshot, name: str) -> NDArray[np.bool_]:
    """Mark the rows of the source of this name. Raises UsageError where there is none."""
    names = [source.name for source in snapshot.sources]
    if name not in names:
        raise UsageError(f"source={name!r:.100}: use one of {', '.join(names)}")
    return snapshot.outlines.equal("source", names.index(name))


def _labeled(snapshot: Snapshot, label: str) -> NDArray[np.bool_]:
    """Mark the rows that have the label. Shape: (rows,)."""
    matches, outlines = np.zeros(len(snapshot.outlines), np.bool_), snapshot.outlines
    for (source, rollout_id, attempt), labeled in snapshot.labels.all().items():
        if label in labeled.labels:
            of_rollout = outlines.equal("rollout_id", rollout_id) & outlines.equal("attempt", attempt)
            matches |= of_rollout & outlines.equal("source", source)
    return matches


def _rewards(snapshot: Snapshot) -> NDArray[np.float64]:
    """The rewards, NaN where there is none. Shape: (rows,)."""
    return snapshot.outlines.column("reward").to_numpy(zero_copy_only=False).astype(np.float64)


def _real(query: Mapping[str, str], name: str) -> float:
    try:
        return float(query[name])
    except ValueError:
        raise UsageError(f"{name}={query[name]!r:.50}: is no number") from None


def _judgement(snapshot: Snapshot, query: Mapping[str, str]) -> Judgement:
    return snapshot.judging.wait(_options(query) or DEFAULTS)


_FILTERS: Final[Mapping[str, Callable[[Snapshot, Mapping[str, str]], NDArray[np.bool_]]]] = {
    "status": lambda snapshot, query: snapshot.outlines.equal("status", query["status"]),
    "complete": _complete,
    "split": lambda snapshot, query: snapshot.outlines.equal("shown_split", query["split"] or None),
    "step": lambda snapshot, query: snapshot.outlines.equal("shown_training_step", _number(query, "step", 0)),
    "group": lambda snapshot, query: snapshot.outlines.in_group(decode_group_key(query["group"])),
    "reason": lambda snapshot, query: snapshot.outlines.reasons.having(query["reason"]),
    "model": lambda snapshot, query: snapshot.outlines.models.having(query["model"]),
    "version": lambda snapshot, query: snapshot.outlines.equal("shown_policy_version", query["version"]),
    "min_reward": lambda snapshot, query: _rewards(snapshot) >= _real(query, "min_reward"),
    "max_reward": lambda snapshot, query: _rewards(snapshot) <= _real(query, "max_reward"),
    "agent": lambda snapshot, query: snapshot.outlines.agents.having(query["agent"]),
    "label": lambda snapshot, query: _labeled(snapshot, query["label"]),
    "source": lambda snapshot, query: _in_source(snapshot, query["source"]),
    "skip": lambda snapshot, query: _judgement(snapshot, query).skipped(query["skip"]),
    "completion": lambda snapshot, query: _judgement(snapshot, query).completions.having(query["completion"]),
    "q": lambda snapshot, query: snapshot.search.rows(query["q"]),
}
"""Filters by name. An empty one is none, but for `split`, which then asks for rows without a split."""


def _order(snapshot: Snapshot, query: Mapping[str, str]) -> NDArray[np.int64]:
    """The rows by the first of the keys in `sort`, equal ones by the next; `order` has a direction for each."""
    sorts, orders = (query.get("sort") or "").split(","), (query.get("order") or "asc").split(",")
    for order in orders:
        if order not in ("asc", "desc"):
            raise UsageError(f"order={order!r:.50}: use asc or desc")
    if sorts == [""]:
        return snapshot.outlines.newest if orders[0] == "asc" else snapshot.outlines.newest[::-1]
    if len(sorts) > _MOST_KEYS:
        raise UsageError(f"sort={query['sort']!r:.50}: at most {_MOST_KEYS} keys")
    is_kept = not {"tokens", "trained"} & set(sorts)  # these depend on the options
    key = (",".join(sorts), ",".join(orders))
    if key in snapshot.orders:
        return snapshot.orders[key]
    directions = [*orders, *["asc"] * len(sorts)]
    # Each key is sorted as ranks, for rows without a value come last in both directions.
    ranks = [_ranks(_sort_values(snapshot, sort, query), order) for sort, order in zip(sorts, directions, strict=False)]
    result = np.lexsort(ranks[::-1]).astype(np.int64)
    if is_kept:
        snapshot.orders[key] = result
    return result


def _ranks(values: pa.Array, order: str) -> NDArray[np.int64]:
    """The place of each value among the different ones, in this direction; those without one come last."""
    encoded = values.dictionary_encode()
    direction = "descending" if order == "desc" else "ascending"
    places = pc.array_sort_indices(encoded.dictionary, order=direction).to_numpy()
    ranks = np.empty(len(places) + 1, np.int64)
    ranks[places] = np.arange(len(places))
    ranks[-1] = len(places)
    return ranks[pc.fill_null(encoded.indices, len(places)).to_numpy(zero_copy_only=False).astype(np.int64)]


def _sort_values(snapshot: Snapshot, sort: str, query: Mapping[str, str]) -> pa.Array:
    outlines = snapshot.outlines
    if column := _SORTS.get(sort):
        return outlines.column(column)
    if sort in ("calls", "turns"):
        return pa.array(outlines.calls if sort == "calls" else outlines.turns)
    if sort == "duration":
        return pc.subtract(outlines.column("ended_at"), outlines.column("started_at"))
    if sort in ("tokens", "trained"):
        judgement = _judgement(snapshot, query)
        return (
            pa.array(judgement.trained) if sort == "trained" else pa.array(judgement.sampled, mask=~judgement.counted)
        )
    raise UsageError(f"sort={sort!r:.50}: use one of {', '.join((*_SORTS, *_COUNTED))}")


def _options(query: Mapping[str, str]) -> PlanOptions | None:
    """The plan's options where the query has any: `plan` holds them as a query of its own."""
    return PlanOptions.read(dict(parse_qsl(query["plan"]))) if query.get("plan") else None


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name) or str(default)
    if not text.isdecimal() or len(text) > 18:
        raise UsageError(f"{name}={text!r:.50}: is no number")
    return int(text)
