"""Listing: the rollouts that a filter leaves, in an order, a page at a time; which comes before and after one.

Invariant: filters are joined by "and"; rows without a value come last in every order. Of equals the lowest advantage
comes first, then the latest step, then the newest. Without an order the newest come first.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_plus

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from art_otel.errors import UsageError
from art_otel.viewer.addresses import TrajectoryKey, decode_group_key, encode_key
from art_otel.viewer.judging import DEFAULTS, FLAT, Judgement, PlanOptions
from art_otel.viewer.rollout import show_rows
from art_otel.viewer.snapshot import Snapshot
from art_otel.viewer.texts import show_texts

MOST_ROWS: Final = 200

_SORTS: Final = {"reward": "reward", "started": "started_at", "rollout": "rollout_id", "step": "shown_training_step"}
PLACE: Final = ("at", "focus")
"""What else the address of the page's list holds: how far it is scrolled."""
_COMPUTED: Final = ("task", "turns", "tokens", "advantage")


def list_page(snapshot: Snapshot, query: Mapping[str, str]) -> dict[str, Any]:
    """A page of rows. Raises UsageError for a filter, order or page that does not exist."""
    rows = list_rows(snapshot, query)
    page = _page(rows, query)
    return {
        "total": len(rows),
        "offset": read_number(query, "offset", 0),
        "rows": show_rows(snapshot, page, asked_options(query)),
    }


def list_texts(snapshot: Snapshot, query: Mapping[str, str]) -> dict[str, Any]:
    """What the rollouts of a page of rows were asked and said last, which takes longer to read than the rows."""
    rows = list_rows(snapshot, query)
    return {"total": len(rows), "rows": show_texts(snapshot, _page(rows, query).tolist())}


def _page(rows: NDArray[np.int64], query: Mapping[str, str]) -> NDArray[np.int64]:
    offset, limit = read_number(query, "offset", 0), min(read_number(query, "limit", MOST_ROWS), MOST_ROWS)
    return rows[offset : offset + limit]


def neighbors(snapshot: Snapshot, row: int, query: Mapping[str, str]) -> dict[str, Any]:
    """The rollouts before and after one in the list that one came from, and how many there are.

    Where it is not in the list any more, those of all rollouts.
    """
    rows = list_rows(snapshot, query)
    if row not in rows:
        rows = list_rows(snapshot, {})
    place = int(np.flatnonzero(rows == row)[0])
    (before, after) = (
        encode_key(TrajectoryKey.of(snapshot.outlines.records([rows[at]])[0])) if 0 <= at < len(rows) else None
        for at in (place - 1, place + 1)
    )
    return {"previous": before, "next": after, "listed": len(rows)}


def list_rows(snapshot: Snapshot, query: Mapping[str, str]) -> NDArray[np.int64]:
    """The numbers of the rows that the query asks for, in its order."""
    order = _order(snapshot, query)
    return order[chosen_rows(snapshot, query)[order]]


def read_address(address: str) -> dict[str, str]:
    """The query of a list's address: what stands behind `#/?` or `#/t?`, or the query alone.

    Raises UsageError for what the list does not know, which would otherwise choose nothing.
    """
    _, is_address, behind = address.partition("#/")
    query = dict(parse_qsl(behind.partition("?")[2] if is_address else address, keep_blank_values=True))
    known = (*_FILTERS, "sort", "order", "plan")
    for name in query:
        if name not in known and name not in PLACE:
            raise UsageError(f"--where {name}: is an unknown filter; use {', '.join(known)}")
    return query


def is_list_filter(part: str) -> bool:
    """Whether a part of an address, `name=value`, is one that the list knows. Others may be conditions on rollouts."""
    name = unquote_plus(part.partition("=")[0])
    return name in (*_FILTERS, "sort", "order", "plan", *PLACE)


def chosen_rows(snapshot: Snapshot, query: Mapping[str, str]) -> NDArray[np.bool_]:
    """Mark the rows that the filters of a query leave. Shape: (rows,). Raises UsageError."""
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


def _real(query: Mapping[str, str], name: str) -> float:
    try:
        return float(query[name])
    except ValueError:
        raise UsageError(f"{name}={query[name]!r:.50}: is no number") from None


def _judgement(snapshot: Snapshot, query: Mapping[str, str]) -> Judgement:
    return snapshot.judging.wait(asked_options(query) or DEFAULTS)


def _in_steps(snapshot: Snapshot, text: str) -> NDArray[np.bool_]:
    """Mark the rows of a step, or of steps from the first to the last: `10-19`. Shape: (rows,)."""
    first, _, last = text.partition("-")
    query, steps = {"step": first, "last": last or first}, snapshot.outlines.steps
    low, high = read_number(query, "step", 0), read_number(query, "last", 0)
    return np.array([*(low <= step <= high for step in steps.names), False], np.bool_)[steps.codes]


def _going_wrong(snapshot: Snapshot, what: str) -> NDArray[np.bool_]:
    """Mark the rows with something of this kind that went wrong. Shape: (rows,)."""
    outlines = snapshot.outlines
    match what:
        case "cut":
            return outlines.cut
        case "failed":
            return outlines.failed & ~outlines.equal("status", "error")
        case "incomplete":
            return ~outlines.equal("complete", True) & ~snapshot.running  # noqa: FBT003 # the value that is looked for
        case "running":
            return snapshot.running
        case _:
            raise UsageError(f"wrong={what!r:.50}: use cut, failed, incomplete or running")


def _training(snapshot: Snapshot, query: Mapping[str, str]) -> NDArray[np.bool_]:
    """Mark the rows of which something is trained with a gradient, with advantage 0, or not at all. Shape: (rows,)."""
    judgement = _judgement(snapshot, query)
    match query["trains"]:
        case "gradient":
            return judgement.has_gradient
        case "flat":
            return judgement.flat > 0
        case "no":
            return judgement.trained == 0
        case what if what in FLAT:
            return judgement.flat_kinds(snapshot.outlines) == [*FLAT].index(what)
        case what:
            raise UsageError(f"trains={what!r:.50}: use gradient, flat, {', '.join(FLAT)} or no")


_FILTERS: Final[Mapping[str, Callable[[Snapshot, Mapping[str, str]], NDArray[np.bool_]]]] = {
    "status": lambda snapshot, query: snapshot.outlines.equal("status", query["status"]),
    "complete": _complete,
    "split": lambda snapshot, query: snapshot.outlines.equal("shown_split", query["split"] or None),
    "step": lambda snapshot, query: _in_steps(snapshot, query["step"]),
    "task": lambda snapshot, query: snapshot.outlines.tasks.equal(query["task"]),
    "wrong": lambda snapshot, query: _going_wrong(snapshot, query["wrong"]),
    "error": lambda snapshot, query: snapshot.outlines.errors.equal(query["error"]),
    "trains": _training,
    "group": lambda snapshot, query: snapshot.outlines.in_group(decode_group_key(query["group"])),
    "reason": lambda snapshot, query: snapshot.outlines.reasons.having(query["reason"]),
    "model": lambda snapshot, query: snapshot.outlines.models.having(query["model"]),
    "version": lambda snapshot, query: snapshot.outlines.equal("shown_policy_version", query["version"]),
    "min_reward": lambda snapshot, query: snapshot.outlines.rewards >= _real(query, "min_reward"),
    "max_reward": lambda snapshot, query: snapshot.outlines.rewards <= _real(query, "max_reward"),
    "agent": lambda snapshot, query: snapshot.outlines.agents.having(query["agent"]),
    "label": lambda snapshot, query: _labeled(snapshot, query["label"]),
    "source": lambda snapshot, query: _in_source(snapshot, query["source"]),
    "why": lambda snapshot, query: _judgement(snapshot, query).untrained(query["why"]),
    "q": lambda snapshot, query: snapshot.search.rows(query["q"]),
}
"""Filters by name. An empty one is none, but for `split`, which then asks for rows without a split."""


def _order(snapshot: Snapshot, query: Mapping[str, str]) -> NDArray[np.int64]:
    """The rows by the key in `sort`; those without a value come last in both directions."""
    sort, order = query.get("sort") or "", query.get("order") or "asc"
    if order not in ("asc", "desc"):
        raise UsageError(f"order={order!r:.50}: use asc or desc")
    if not sort:
        return snapshot.outlines.newest if order == "asc" else snapshot.outlines.newest[::-1]
    options, key = asked_options(query), (f"{sort} {order}", query.get("plan") or "")
    judgement = snapshot.judging.done() if options is None else snapshot.judging.wait(options)
    if key in snapshot.orders:
        return snapshot.orders[key]
    encoded = _sort_values(snapshot, sort, query).dictionary_encode()
    direction = "descending" if order == "desc" else "ascending"
    places = pc.array_sort_indices(encoded.dictionary, order=direction).to_numpy()
    ranks = np.append(np.argsort(places), len(places))
    codes = pc.fill_null(encoded.indices, len(places)).to_numpy(zero_copy_only=False)
    steps = snapshot.outlines.column("shown_training_step").to_numpy(zero_copy_only=False).astype(np.float64)
    age = np.argsort(snapshot.outlines.newest)
    result = np.lexsort((age, -steps, age if judgement is None else judgement.advantage, ranks[codes])).astype(np.int64)
    if judgement is not None:
        snapshot.orders[key] = result
    return result


def _sort_values(snapshot: Snapshot, sort: str, query: Mapping[str, str]) -> pa.Array:
    outlines = snapshot.outlines
    if column := _SORTS.get(sort):
        return outlines.column(column)
    if sort == "task":
        return pa.array([*outlines.tasks.names, None], pa.string()).take(
            pa.array(outlines.tasks.codes % (len(outlines.tasks.names) + 1))
        )
    if sort == "turns":
        return pa.array(outlines.turns)
    if sort == "tokens":
        judgement = _judgement(snapshot, query)
        return pa.array(judgement.sampled, mask=~judgement.counted)
    if sort == "advantage":
        return pa.array(_judgement(snapshot, query).advantage, from_pandas=True)
    raise UsageError(f"sort={sort!r:.50}: use one of {', '.join((*_SORTS, *_COMPUTED))}")


def asked_options(query: Mapping[str, str]) -> PlanOptions | None:
    """The plan's options where the query has any: `plan` holds them as a query of its own."""
    return PlanOptions.read(dict(parse_qsl(query["plan"]))) if query.get("plan") else None


def read_number(query: Mapping[str, str], name: str, default: int) -> int:
    """A whole number of a query. Raises UsageError."""
    text = query.get(name) or str(default)
    if not text.isdecimal() or len(text) > 18:
        raise UsageError(f"{name}={text!r:.50}: is no number")
    return int(text)
