"""Saying: the four answers of the first page as text, or as JSON, for a terminal and for agents.

Invariant: the numbers are those of the page. Each answer has the address, behind that of the page, that shows what it
is of: tasks, steps, and rollouts with the turn that was last.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from art_otel.viewer.listing import read_address
from art_otel.viewer.run import read_first, show_run
from art_otel.viewer.snapshot import Snapshot
from art_otel.viewer.tasks import FAILING

_MOST_TASKS: Final = 10


def address_of(query: Mapping[str, str]) -> str:
    """The address of the first page with this query."""
    return f"#/?{urlencode(query)}" if query else "#/"


def say(snapshot: Snapshot, where: str) -> dict[str, Any]:
    """The four answers of the rollouts that an address chooses, and which to read. Raises UsageError and StoreError."""
    query = read_address(where)
    snapshot.judging.wait()  # so that the numbers are there
    run = show_run(snapshot, query)

    def address(**more: str) -> str:
        return address_of(query | more)

    trains, wrong, tasks = run["trains"], run["wrong"], run["tasks"]
    failing = [task for task in tasks["shown"] if task["kind"] in FAILING]
    return {
        "address": address(),
        "rollouts": run["matching"],
        "running": run["running"],
        "problem": run["problem"],
        "learned": [
            {
                **{name: one[name] for name in ("source", "split", "first", "last")},
                "addresses": [address(**each) if each else None for each in one["queries"]],
            }
            for one in run["learned"]
        ],
        "tasks": {
            "total": tasks["total"],
            **tasks["counts"],
            "named": [
                {
                    "task": task["name"],
                    "kind": task["kind"],
                    "last": task["cells"][-1][1],
                    "address": address(task=task["name"]),
                }
                for task in failing
            ],
        },
        "trains": trains
        and {
            **{name: each for name, each in trains.items() if name not in ("parts", "unchosen")},
            "parts": [
                {name: part[name] for name in ("reason", "tokens", "helps")}
                | {"rollouts": part["count"], "address": address(**part["query"])}
                for part in trains["parts"]
            ],
            "without_a_choice": trains["unchosen"],
        },
        "wrong": {
            **{name: wrong[name] for name in ("error", "failed", "cut", "incomplete")},
            "errors": [one | {"address": address(error=one["text"])} for one in wrong["errors"] if one["text"]],
        },
        "read": [
            {
                "why": one["why"],
                **{name: one["row"][name] for name in ("rolloutId", "task", "step", "reward", "advantage", "failure")},
                "failed_tool": one["failed"],
                "answer": one["answer"],
                "address": f"#/r/{one['row']['key']}" + ("" if one["turn"] is None else f"?t={one['turn']}"),
            }
            for one in read_first(snapshot, query)["rollouts"]
        ],
    }


def _rollouts(count: int) -> str:
    return f"{count:,} rollout{'' if count == 1 else 's'}"


def as_text(said: Mapping[str, Any]) -> str:
    """The answers as lines of text."""
    lines = [_rollouts(said["rollouts"]) + (f", {said['running']:,} running" if said["running"] else "")]
    if said["problem"]:
        lines.append(f"! {said['problem']}")
    for one in said["learned"]:
        of = " of ".join(filter(None, (one["split"] if len(said["learned"]) > 1 else "", one["source"])))
        means = [f"{one[name]:.2f}" for name in ("first", "last") if one[name] is not None]
        lines.append(f"Did it learn?       {' → '.join(means) or 'unknown'}" + (f"  ({of})" if of else ""))
        of_ends = " of the first and last tenth" if means[1:] else ""
        lines.append(_line(f"mean reward{of_ends}", *one["addresses"]))
    tasks = said["tasks"]
    failing = ", ".join(f"{tasks[kind]} {kind}" for kind in FAILING if tasks[kind]) or "none"
    lines.append(f"Which tasks fail?   {failing} of {tasks['total']}")
    lines += [_line(f"{one['kind']}: {one['task']}", one["address"]) for one in tasks["named"][:_MOST_TASKS]]
    if len(tasks["named"]) > _MOST_TASKS:
        lines.append(_line(f"and {len(tasks['named']) - _MOST_TASKS} more"))
    if (trains := said["trains"]) is not None:
        share = f"{_share(trains['gradient'], trains['sampled'])} of {trains['sampled']:,} tokens"
        flat = f"; {_share(trains['flat'], trains['sampled'])} have advantage 0" if trains["flat"] else ""
        lines.append(f"What trains?        {share}{flat}")
        if trains["gradientCut"]:
            lines.append(
                _line(f"{trains['gradientCut']:,} of {_rollouts(trains['gradientRollouts'])} with a gradient were cut")
            )
        lines += [
            _line(f"{one['reason']}: {_rollouts(one['rollouts'])}. {one['helps']}", one["address"])
            for one in trains["parts"]
        ]
        if trains["without_a_choice"]:
            named = ", ".join(
                f"{one['name'] or 'without a name'} {one['tokens']:,}" for one in trains["without_a_choice"]
            )
            lines.append(_line(f"trained without a choice of {trains['without_a_choice'][0]['kind']}: {named} tokens"))
    wrong = said["wrong"]
    counts = {"ended in an error": wrong["error"], "cut": wrong["cut"], "with a failed call": wrong["failed"]}
    counts["incomplete"] = wrong["incomplete"]
    named = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "nothing"
    lines.append(f"What goes wrong?    {named}")
    lines += [_line(f"{one['count']:,}: {one['text']}", one["address"]) for one in wrong["errors"]]
    lines.append("Read these first")
    for one in said["read"]:
        reward = "no reward" if one["reward"] is None else f"reward {one['reward']:g}"
        step = "" if one["step"] is None else f", step {one['step']}"
        lines.append(_line(f"{one['task'] or one['rolloutId']}{step}, {reward}: {one['why']}", one["address"]))
    return "\n".join(lines)


def _line(text: str, *addresses: str | None) -> str:
    return "  ".join([f"  {text}", *filter(None, addresses)])


def _share(part: int, all_: int) -> str:
    """A share as the page says it."""
    share = 100 * part / all_ if all_ else 0
    return "<1%" if 0 < share < 1 else ">99%" if 99 < share < 100 else f"{share:.0f}%" if all_ else "none"
