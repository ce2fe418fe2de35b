"""Run: the first page: what was learned, which tasks fail, what trains and what goes wrong, of the chosen rows.

Invariant: what trains is the judgement of all rows under the chosen options, the numbers of `art_otel.batches(...)`;
filters choose among its rows, and the parts of all rows' tokens sum up to their sampled ones. Unknown is null. Queries
are parts of the page's address that choose the rows a number is of.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownArgumentType=false

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from art_otel import storage
from art_otel.data.cures import cure_of, cure_of_no_reward, show_reason
from art_otel.data.decisions import TOO_LONG
from art_otel.data.selection import HELD_OUT
from art_otel.errors import StorageError
from art_otel.runlog.history import means_by_step, read_rows
from art_otel.store import REPORT_NAME
from art_otel.viewer.addresses import NotFoundError
from art_otel.viewer.judging import DEFAULTS, FLAT, Judgement, PlanOptions, described_options
from art_otel.viewer.listing import asked_options, chosen_rows
from art_otel.viewer.outlines import ValueColumn
from art_otel.viewer.rollout import show_rows
from art_otel.viewer.snapshot import Snapshot
from art_otel.viewer.tasks import Kinds, show_tasks
from art_otel.viewer.texts import show_texts

Rows = NDArray[np.int64]

_MOST_COLUMNS: Final = 100
_MOST_CHOICES: Final = 200
_BINS: Final = 20
_MOST_ERRORS: Final = 5
_READ_FIRST: Final = 8
_FLAT_HELPS: Final = (
    "Sample tasks that are sometimes solved, more rollouts of each, or leave them out with zero_variance=drop."
)
_AXES: Final = frozenset({"step", "training_step", "recorded_at"})


class Axis(NamedTuple):
    """What numbers are compared over: steps, policy versions or sources. A column of many steps is of several.

    `codes` has the column of each row, -1 for none. It has `size` of all `steps`; its label chooses its rows.
    """

    kind: str
    labels: list[str]
    codes: Rows
    steps: int
    size: int


def show_run(snapshot: Snapshot, query: Mapping[str, str]) -> dict[str, Any]:
    """The numbers of the rows that the query chooses; what is not judged yet is null. Raises UsageError."""
    rows, options = np.flatnonzero(chosen_rows(snapshot, query)), asked_options(query)
    judgement = snapshot.judging.done() if options is None else snapshot.judging.wait(options)
    axis = _axis(snapshot)
    series = _series(snapshot, judgement, axis, rows)
    return {
        "total": len(snapshot.outlines),
        "matching": len(rows),
        "running": int(snapshot.running[rows].sum()),
        "judged": judgement is not None,
        "problem": snapshot.judging.problem() if judgement is None else judgement.problem,
        "axis": {name: getattr(axis, name) for name in ("kind", "labels", "steps", "size")},
        "series": series,
        "learned": [_learned(axis, one) for one in series],
        "tasks": show_tasks(snapshot, judgement, axis, rows, _over_steps(snapshot, query, rows)),
        "trains": None if judgement is None else _trains(snapshot, judgement, options or DEFAULTS, rows),
        "wrong": _wrong(snapshot, rows),
        "rewards": _histogram(snapshot.outlines.rewards[rows]),
        "choices": _choices(snapshot),
        "repeated": snapshot.combined.repeated,
        "sharedGroups": snapshot.combined.shared_group_ids,
        "account": _account(snapshot),
    }


def _over_steps(snapshot: Snapshot, query: Mapping[str, str], rows: Rows) -> Rows:
    """The rows at all steps: a task is of the same kind whichever step or group of it is chosen."""
    others = {name: value for name, value in query.items() if name not in ("step", "group")}
    return rows if len(others) == len(query) else np.flatnonzero(chosen_rows(snapshot, others))


def _axis(snapshot: Snapshot) -> Axis:
    """Steps, or where there is at most one, versions of the policy, or sources. Of many steps a column has several."""
    outlines = snapshot.outlines
    names = [source.name for source in snapshot.sources]
    versions, sources = (
        ValueColumn.of(outlines.column("shown_policy_version")),
        ValueColumn.of(outlines.column("source")),
    )
    kinds = [("step", outlines.steps), ("version", versions), ("source", sources)]
    kind, values = next(((kind, each) for kind, each in kinds if len(each.names) > 1), kinds[0])
    order = sorted(range(len(values.names)), key=lambda code: _number_first(values.names[code]))
    size = max(-(-len(order) // _MOST_COLUMNS), 1) if kind == "step" else 1
    columns = np.full(len(order) + 1, -1)
    columns[order] = np.arange(len(order)) // size
    labels: list[str] = []
    for start in range(0, len(order), size):
        first, last = (values.names[order[at]] for at in (start, min(start + size, len(order)) - 1))
        label = names[first] if kind == "source" else str(first)
        labels.append(label if first == last else f"{first}-{last}")
    return Axis(kind, labels, columns[values.codes], len(order), size)


def _number_first(value: object) -> tuple[int, str]:
    """Numbers in their order, other versions behind them."""
    text = str(value)
    return (int(text), "") if text.isdecimal() and len(text) < 18 else (1 << 62, text)


def _series(snapshot: Snapshot, judgement: Judgement | None, axis: Axis, rows: Rows) -> list[dict[str, Any]]:
    """The mean reward of each column, and the share of its groups with a gradient, apart by source and held-out split.

    A group counts where the options choose its split; where there is no group a share is null.
    """
    outlines, count = snapshot.outlines, len(axis.labels)
    rewards, groups = outlines.rewards, outlines.groups_of_rows[0]
    splits = ValueColumn.of(outlines.column("shown_split"))
    held_out = np.array([*(name in HELD_OUT for name in splits.names), False])[splits.codes]
    sources = outlines.sources if axis.kind != "source" else np.zeros(len(outlines), np.int64)
    series: list[dict[str, Any]] = []
    for source in range(int(sources.max(initial=-1)) + 1):
        for is_held_out in (False, True):
            members = rows[(sources[rows] == source) & (held_out[rows] == is_held_out) & (axis.codes[rows] >= 0)]
            if not len(members):
                continue
            rewarded = members[np.isfinite(rewards[members])]
            sums = np.bincount(axis.codes[rewarded], rewards[rewarded], count)
            counts = np.bincount(axis.codes[rewarded], minlength=count)
            series.append({
                "source": snapshot.sources[source].name if sources.any() else None,
                "split": "held out" if is_held_out else "train",
                "rollouts": np.bincount(axis.codes[members], minlength=count).tolist(),
                "rewarded": counts.tolist(),
                "reward": [
                    total / size if size else None
                    for total, size in zip(sums.tolist(), counts.tolist(), strict=True)
                ],
                "smooth": _smooth(sums, counts),
                "gradient": None if judgement is None else _gradient(judgement, axis, groups, members),
            })  # fmt: skip
    return series


def _smooth(sums: NDArray[Any], counts: Rows) -> list[float | None]:
    """The mean over a tenth of the columns that have rewards; at both ends it is that of the whole tenth there."""
    known = np.flatnonzero(counts)
    tenth = -(-len(known) // 10)
    starts = np.clip(np.arange(len(known)) - tenth // 2, 0, len(known) - tenth)
    totals, sizes = (np.concatenate([[0], np.cumsum(values[known])]) for values in (sums, counts))
    means = (totals[starts + tenth] - totals[starts]) / (sizes[starts + tenth] - sizes[starts])
    smooth: list[float | None] = [None] * len(counts)
    for column, mean in zip(known.tolist(), means.tolist(), strict=True):
        smooth[column] = mean
    return smooth


def _gradient(judgement: Judgement, axis: Axis, groups: Rows, rows: Rows) -> list[float | None]:
    """The share of the groups of each column with a token that teaches something."""
    grouped = rows[(judgement.verdicts[rows] != "split") & (groups[rows] >= 0)]
    pairs, numbers = np.unique(groups[grouped] * len(axis.labels) + axis.codes[grouped], return_inverse=True)
    teaches = np.bincount(numbers, judgement.has_gradient[grouped], len(pairs)) > 0
    columns = pairs % max(len(axis.labels), 1)
    counts = np.bincount(columns, minlength=len(axis.labels)).tolist()
    teaching = np.bincount(columns, teaches, len(axis.labels)).tolist()
    return [each / count if count else None for each, count in zip(teaching, counts, strict=True)]


def _learned(axis: Axis, series: Mapping[str, Any]) -> dict[str, Any]:
    """The ends of the smooth line, and over how many steps they are; one column has a mean alone."""
    known = [column for column, count in enumerate(series["rewarded"]) if count]
    tenth = -(-len(known) // 10)
    parts = [known[:tenth], known[-tenth:] if len(known) > 1 else []]
    return {
        "source": series["source"],
        "split": series["split"],
        "first": series["smooth"][known[0]] if known else None,
        "last": series["smooth"][known[-1]] if len(known) > 1 else None,
        "over": tenth * axis.size,
        "queries": [_query_of(axis, part) for part in parts],
    }


def _query_of(axis: Axis, columns: Sequence[int]) -> dict[str, str] | None:
    if not columns:
        return None
    first, last = (axis.labels[column] for column in (columns[0], columns[-1]))
    span = f"{first.partition('-')[0]}-{last.rpartition('-')[2]}" if axis.kind == "step" and first != last else first
    return {axis.kind: span}


def _trains(snapshot: Snapshot, judgement: Judgement, options: PlanOptions, rows: Rows) -> dict[str, Any]:
    """The sampled tokens in parts: with a gradient, with advantage 0, and by each reason why they do not train.

    Each rollout is in the `rollouts` of one part; `count` are those with tokens of it.
    """
    taken = rows[~snapshot.running[rows]]
    is_taken = np.zeros(len(snapshot.outlines), np.bool_)
    is_taken[taken] = True
    refused = taken[judgement.refused[taken]]
    verdicts, tokens = Counter[str | None](judgement.verdicts[taken].tolist()), Counter[str]()
    for row, reason in zip(refused.tolist(), judgement.verdicts[refused].tolist(), strict=True):
        tokens[reason] += int(judgement.sampled[row])
    # Of the others each completion has a reason of its own; of one without a reason too much may be cut.
    names, turn_rows = judgement.completions.names, np.repeat(np.arange(len(is_taken)), snapshot.outlines.turns)
    lost = np.where((is_taken & ~judgement.refused)[turn_rows], judgement.turn_sampled - judgement.turn_trained, 0)
    sums = np.bincount(np.where(judgement.completions.codes < 0, len(names), judgement.completions.codes), lost)
    for reason, count in zip([*names, TOO_LONG], sums.tolist(), strict=False):
        tokens[reason] += int(count)
    reasons = {*tokens, *filter(None, verdicts)}
    rollouts: dict[str, int] = {reason: int(judgement.untrained(reason)[taken].sum()) for reason in reasons}
    cures = {reason: cure_of(reason) for reason in rollouts}
    if "no reward" in cures:
        cures["no reward"] = cure_of_no_reward(judgement.report.no_final_reward)
    flat, trained = int(judgement.flat[taken].sum()), int(judgement.trained[taken].sum())
    learns, kinds = judgement.has_gradient & is_taken, np.where(is_taken, judgement.flat_kinds(snapshot.outlines), -1)
    return {
        "sampled": int(judgement.sampled[taken].sum()),
        "gradient": trained - flat,
        "flat": flat,
        "uncounted": int((~judgement.counted[taken]).sum()),
        "rollouts": len(taken),
        "trained": verdicts[None],
        "gradientRollouts": int(learns.sum()),
        "gradientCut": int((learns & snapshot.outlines.cut).sum()),
        "gradientErrors": int((learns & snapshot.outlines.equal("status", "error")).sum()),
        "parts": [
            {
                "reason": f"advantage 0: {kind}",
                "query": {"trains": kind},
                "means": means,
                "helps": _FLAT_HELPS,
                "count": int((kinds == code).sum()),
                "rollouts": int(((kinds == code) & ~learns).sum()),
                "tokens": int(judgement.flat[kinds == code].sum()),
            }
            for code, (kind, means) in enumerate(FLAT.items())
            if (kinds == code).any()
        ]
        + [
            show_reason(reason, rollouts[reason], cures[reason])
            | {"query": {"why": reason}, "tokens": tokens[reason], "rollouts": verdicts[reason]}
            for reason in sorted(rollouts, key=lambda each: (-tokens[each], -rollouts[each], each))
            if rollouts[reason] or tokens[reason]
        ],
        "unchosen": _unchosen(snapshot, judgement, options, is_taken),
    }


def _unchosen(
    snapshot: Snapshot, judgement: Judgement, options: PlanOptions, is_taken: NDArray[np.bool_]
) -> list[dict[str, Any]]:
    """The trained tokens of each model, or else of each agent, where several are trained and nobody chose."""
    outlines = snapshot.outlines
    if options.text("models") is not None or options.text("agents") is not None:
        return []
    turn_rows = np.repeat(np.arange(len(is_taken)), outlines.turns)
    turns = np.flatnonzero(is_taken[turn_rows] & (judgement.turn_trained > 0))
    for kind, column in (("models", outlines.models), ("agents", outlines.agents)):
        codes = column.codes[outlines.turn_calls[turns]]
        tokens = np.bincount(codes % (len(column.names) + 1), judgement.turn_trained[turns], len(column.names) + 1)
        trained = [
            {"kind": kind, "name": name, "tokens": int(count)}
            for name, count in zip([*column.names, None], tokens.tolist(), strict=True)
            if count
        ]
        if len(trained) > 1:
            return sorted(trained, key=lambda one: -one["tokens"])
    return []


def _wrong(snapshot: Snapshot, rows: Rows) -> dict[str, Any]:
    """How many rows failed, had a failed call or a cut answer, or are incomplete; and the commonest errors."""
    outlines, running = snapshot.outlines, snapshot.running
    is_error = outlines.equal("status", "error")
    errors = outlines.errors
    counts = Counter(errors.names[code] if code >= 0 else None for code in errors.codes[rows[is_error[rows]]].tolist())
    return {
        "error": int(is_error[rows].sum()),
        "failed": int((outlines.failed & ~is_error)[rows].sum()),
        "cut": int(outlines.cut[rows].sum()),
        "incomplete": int((~outlines.equal("complete", True) & ~running)[rows].sum()),  # noqa: FBT003 # a value
        "errors": [{"text": text, "count": count} for text, count in counts.most_common(_MOST_ERRORS)],
    }


def read_first(snapshot: Snapshot, query: Mapping[str, str]) -> dict[str, Any]:
    """Eight of the chosen rows that are worth reading, each with why and its last words. Raises UsageError."""
    outlines = snapshot.outlines
    matches, options = chosen_rows(snapshot, query), asked_options(query)
    rows = np.flatnonzero(matches & ~snapshot.running)
    judgement = snapshot.judging.wait(options or DEFAULTS)
    # The latest first: of a run that learned, old failures are no news.
    axis, age = _axis(snapshot), np.argsort(outlines.newest)
    late = rows[np.lexsort((age[rows], -axis.codes[rows]))]
    tasks, kinds = outlines.tasks, Kinds.of(outlines, axis.codes, rows, _over_steps(snapshot, query, rows))
    trained = late[np.isfinite(judgement.advantage[late])]
    advantage = np.round(judgement.advantage[trained], 6)  # of those equal but for their last bits the latest is first
    lowest = trained[np.argsort(advantage, kind="stable")][: int((advantage < 0).sum())]
    highest = trained[np.argsort(-advantage, kind="stable")][: int((advantage > 0).sum())]
    forgotten = np.isin(tasks.codes[late], kinds.tasks_of("forgotten"))
    never = np.isin(tasks.codes[late], kinds.tasks_of("never solved"))
    candidates = [
        ("lowest advantage", lowest, 2),
        ("ended in an error", late[outlines.equal("status", "error")[late]], 2),
        ("an answer was cut", late[outlines.cut[late]], 1),
        ("its task was forgotten", late[forgotten], 1),
        ("its task was never solved", late[never], 1),
        ("far above its group", highest, 1),
        ("a failed call", late[(outlines.failed & ~outlines.equal("status", "error"))[late]], 1),
        ("longest", late[np.argsort(-outlines.turns[late], kind="stable")], _READ_FIRST),
    ]
    chosen: dict[int, str] = {}
    seen: set[int] = set()  # tasks: of each reason another
    for why, of_reason, most in candidates:
        for row in of_reason.tolist():
            if len(chosen) == _READ_FIRST or sum(each == why for each in chosen.values()) == most:
                break
            task = int(tasks.codes[row])
            if row not in chosen and (task not in seen or len(tasks.names) < _READ_FIRST):
                chosen[row] = why
                seen.add(task)
    shown = show_rows(snapshot, list(chosen), options)
    texts = show_texts(snapshot, list(chosen))
    return {
        "rollouts": [
            {"row": row, "why": why, **text} for row, why, text in zip(shown, chosen.values(), texts, strict=True)
        ]
    }


def _histogram(rewards: NDArray[np.float64]) -> dict[str, Any]:
    """How many rewards are in each of equal ranges; those that are no finite numbers count as unknown."""
    values = rewards[np.isfinite(rewards)]
    sizes = {"known": len(values), "unknown": len(rewards) - len(values)}
    if not len(values):
        return {**sizes, "bins": []}
    if values.min() == values.max():
        return {**sizes, "bins": [{"from": float(values[0]), "to": float(values[0]), "count": len(values)}]}
    counts, edges = np.histogram(values, bins=_BINS)
    bins = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
    return {**sizes, "bins": [{"from": low, "to": high, "count": count} for low, high, count in bins]}


def _choices(snapshot: Snapshot) -> dict[str, list[str]]:
    """What occurs in the data, by the filters that choose by it. What has one value alone is no choice."""
    outlines, sources = snapshot.outlines, [source.name for source in snapshot.sources]
    values: dict[str, list[str]] = {
        "split": sorted(outlines.distinct("shown_split")),
        "model": [*outlines.models.counts()],
        "agent": [*outlines.agents.counts()],
        "status": sorted(outlines.distinct("status")),
        "version": sorted(outlines.distinct("shown_policy_version"), key=_number_first),
        "task": sorted(name for name in outlines.tasks.names if name),
        "source": sources,
    }
    labels = _labels(snapshot)
    return {name: each[:_MOST_CHOICES] for name, each in values.items() if len(each) > 1} | (
        {"label": labels} if labels else {}
    )


def _labels(snapshot: Snapshot) -> list[str]:
    """The labels of rollouts of the data, the most frequent first."""
    labeled, outlines = snapshot.labels.all(), snapshot.outlines
    ids = pa.array({rollout_id for _, rollout_id, _ in labeled}, pa.string())
    rows = np.flatnonzero(pc.is_in(outlines.column("rollout_id"), value_set=ids))
    keys = [(record["source"], record["rollout_id"], record["attempt"]) for record in outlines.records(rows)]
    return [
        name
        for name, _ in Counter(label for key in keys if key in labeled for label in labeled[key].labels).most_common()
    ]


def _account(snapshot: Snapshot) -> dict[str, Any] | None:
    """What the conversion's report counts; None where the data has several reports, or none."""
    if len(snapshot.outlines.groups) == 0 or len(snapshot.sources) != 1:
        return None
    folder = snapshot.outlines.groups[0].dataset
    try:
        raw: Any = msgspec.json.decode(storage.read(storage.join(folder, REPORT_NAME)))
    except (StorageError, OSError, msgspec.DecodeError):
        return None
    spans = raw.get("spans") if isinstance(raw, dict) else None
    if not isinstance(spans, dict):
        return None
    return {"read": spans.get("read", 0), "quarantined": sum(spans.get("quarantined", {}).values())}


def show_plan(snapshot: Snapshot, options: PlanOptions) -> dict[str, Any]:
    """The options of `art_otel.batches`, and its report with these. Raises UsageError and StoreError."""
    judgement = snapshot.judging.wait(options)
    return {
        "options": described_options(options, choices_of(snapshot)),
        "problem": judgement.problem,
        "report": msgspec.to_builtins(judgement.report),
    }


def choices_of(snapshot: Snapshot) -> dict[str, list[str]]:
    """What occurs in the data and options choose by."""
    outlines = snapshot.outlines
    return {
        "split": sorted(outlines.distinct("split")),
        "models": [*outlines.models.counts(), "*"],
        "agents": [*outlines.agents.counts()],
    }


def show_metrics(snapshot: Snapshot) -> dict[str, Any]:
    """The metrics in the histories of training runs, as their means of each step. Raises NotFoundError."""
    runs = [(source.name, source.run / "history.jsonl") for source in snapshot.sources if source.run is not None]
    if not runs:
        raise NotFoundError("no source is the folder of a training run")
    metrics: dict[str, list[dict[str, Any]]] = {}
    for name, file in runs:
        rows = list(read_rows(file))
        numbers = {
            key
            for row in rows
            for key, value in row.items()
            if key not in _AXES and isinstance(value, int | float) and not isinstance(value, bool)
        }
        for metric in sorted(numbers):
            means = means_by_step(rows, metric)
            steps = sorted(means)
            line = {"run": name, "steps": steps, "values": [means[step] for step in steps]}
            metrics.setdefault(metric, []).append(line)
    return {"metrics": [{"name": name, "lines": metrics[name]} for name in sorted(metrics)]}
