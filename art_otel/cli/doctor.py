"""`art-otel doctor`: why nothing, or too little, is recorded."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from art_otel.cli.terminal import counted, printable

if TYPE_CHECKING:
    from art_otel.store import ConversionReport
    from art_otel.trajectories import Trajectory

_MARKS: Final = {"ok": "ok", "note": "note", "warning": "WARN", "problem": "FAIL"}
_LISTED: Final = 20
_REQUESTS: Final = (
    "decorate the handler with @art_otel.rollout, or start the framework's instrumentor and set"
    " ART_OTEL_ROLLOUT_SPANS; docs/how-to/web-servers.md says how"
)
_THREADS: Final = "threads and pools start without its context; wrap the function with art_otel.in_context(function)"
_LOST: Final = f"if they are its own: {_THREADS}; docs/how-to/web-servers.md says how"
_WITHOUT_CALLS: Final = f"no LLM call is in it. If it made calls: {_THREADS}"


class _Finding(NamedTuple):
    """A line of the answer."""

    level: str
    name: str
    text: str


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "doctor",
        help="explain what is on, what is missing and what conflicts; or why rollouts are empty",
        description="Without a source: explain how a program of this environment would be traced, what is missing"
        " and what conflicts. With sources (a spool or any dump): explain why they have no rollouts,"
        " or why the rollouts are incomplete. The exit code is 1 if a problem makes tracing useless.",
    )
    parser.add_argument("sources", nargs="*", metavar="SOURCE", help="a spool or dumps, as for convert")
    parser.add_argument(
        "--server",
        metavar="URL",
        help="ask a model server what it offers for rollouts: dialects, token ids, logprobs, exact tokens; this "
        "samples a few dozen tokens",
    )
    parser.add_argument("--model", help="with --server: the model to ask for (default: the first that it lists)")
    parser.add_argument("--api-key", metavar="KEY", help="with --server: its API key")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check the environment, or sources, and print the findings."""
    if arguments.server is not None:
        findings = list(_of_server(arguments.server, arguments.model, arguments.api_key))
    else:
        findings = list(_of_sources(arguments.sources) if arguments.sources else _of_environment())
    is_fine = all(finding.level != "problem" for finding in findings)
    if arguments.json:
        _write(json.dumps({"ok": is_fine, "findings": [finding._asdict() for finding in findings]}, indent=2))
    else:
        for finding in findings:
            _write(f"{_MARKS[finding.level]:>4}  {finding.name}: {finding.text}")
    return 0 if is_fine else 1


def _of_environment() -> Iterable[_Finding]:
    from art_otel.cli.autoload import find_autoload  # noqa: PLC0415
    from art_otel.tracing.setup.doctor import inspect_environment, run_checks  # noqa: PLC0415 # loads the SDK

    for check in run_checks(inspect_environment(os.environ)):
        yield _Finding(check.level, check.name, check.text)
    autoload = find_autoload()
    level = "warning" if autoload.state == "does not work" else "note"
    yield _Finding(level, "autoload", f"{autoload.path} {autoload.state}")


def _of_server(url: str, model: str | None, api_key: str | None) -> Iterable[_Finding]:
    import asyncio  # noqa: PLC0415 # as below

    from art_otel.exchange.api_dialects import API_DIALECTS  # noqa: PLC0415 # as below
    from art_otel.model_gateway.grading import grade  # noqa: PLC0415 # loads what only a gateway needs
    from art_otel.model_gateway.upstreams import UpstreamError  # noqa: PLC0415 # as below

    try:
        given = asyncio.run(grade(url, model=model, api_key=api_key))
    except UpstreamError as error:
        yield _Finding("problem", "server", f"{url} does not answer: {error}")
        return
    yield _Finding("ok", "server", f"{given.url}, model {given.model or 'unknown'}, by {given.owner or 'unknown'}")
    for dialect, api in API_DIALECTS.items():
        has = given.dialects[dialect]
        text = "it does not say" if has is None else "yes" if has else "no"
        is_translated = has is False and api.chat_request is not None and given.dialects["chat"]
        text += "; the gateway translates it to Chat Completions and back" if is_translated else ""
        yield _Finding("note" if has is None or is_translated else "ok" if has else "warning", api.title, text)
    for name, ids in (("token ids", given.whole_ids), ("token ids of streams", given.streamed_ids)):
        yield _Finding("ok" if ids == "whole" else "warning", name, ids or "unknown: it did not answer")
    has_prompt_ids = given.has_prompt_ids
    yield _Finding(
        "ok" if has_prompt_ids else "warning", "prompt ids", {True: "yes", False: "no", None: "unknown"}[has_prompt_ids]
    )
    yield _Finding("ok" if given.logprobs == "raw" else "warning", "logprobs", given.logprobs or "unknown")
    yield _Finding(
        "ok" if given.samples_from_ids else "note", "exact tokens", "yes" if given.samples_from_ids else "no"
    )
    for advice in given.advice():
        yield _Finding("note", "advice", advice)


def _of_sources(sources: list[str]) -> Iterable[_Finding]:
    from art_otel.engines import Conversion, convert  # noqa: PLC0415 # pyarrow loads only for a verb that needs it
    from art_otel.store import read_trajectories  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="art-otel-doctor-") as folder:
        report = convert(Conversion(sources=sources, out=Path(folder), workers=1))
        yield from _of_report(report)
        yield from _of_process_rollouts(read_trajectories(folder))
        yield from _of_trajectories(read_trajectories(folder))


def _of_report(report: "ConversionReport") -> Iterable[_Finding]:
    trajectories, calls = report.trajectories, report.calls
    level = "ok" if trajectories.total and calls.total else "problem"
    counts = (
        f"{counted(report.spans.read, 'span')}, {counted(trajectories.total, 'rollout')}"
        f" ({trajectories.complete:,} complete), {counted(calls.total, 'LLM call')}"
    )
    yield _Finding(level, "sources", counts)
    for hint in report.hints:
        yield _Finding("warning", "hint", hint)
    for file in report.unread:
        yield _Finding("problem", "unread", file.error or file.path)
    for piece in report.quarantine[:_LISTED]:
        yield _Finding("warning", "quarantined", f"{piece.path}: {piece.reason} {piece.detail}".rstrip())


def _of_process_rollouts(trajectories: "Iterable[Trajectory]") -> Iterable[_Finding]:
    """Why calls are in a process's own rollout, each reason once: it is why many other rollouts are without."""
    reasons: dict[str, str] = {}
    for trajectory in trajectories:
        if isinstance(framework := trajectory.metadata.get("art.requests_of"), str):
            reason = f"it has the calls of many requests or tasks of {framework}: {_REQUESTS}"
            reasons.setdefault(reason, _about(trajectory))
        if isinstance(name := trajectory.metadata.get("art.calls_after"), str):
            reason = f"some of its calls began after {name!r} had ended without a call; {_LOST}"
            reasons.setdefault(reason, _about(trajectory))
    for reason, about in list(reasons.items())[:_LISTED]:
        yield _Finding("warning", "rollout", f"{about}: {reason}")


def _of_trajectories(trajectories: "Iterable[Trajectory]") -> Iterable[_Finding]:
    from art_otel.trajectories import cure_of_gap  # noqa: PLC0415
    from art_otel.trajectories.wholeness import NO_CALLS  # noqa: PLC0415

    listed = beyond = 0
    for trajectory in trajectories:
        incomplete = trajectory.incomplete_reasons.items()
        reasons = [f"{reason} ({count}): {cure_of_gap(reason)}" for reason, count in incomplete]
        if not trajectory.calls and NO_CALLS not in trajectory.incomplete_reasons:
            reasons.insert(0, _WITHOUT_CALLS)
        if listed == _LISTED:
            beyond += bool(reasons)
            continue
        listed += bool(reasons)
        for reason in reasons:
            yield _Finding("warning", "rollout", f"{_about(trajectory)}: {reason}")
    if beyond:
        yield _Finding("note", "rollout", f"{beyond} more are incomplete; `art-otel convert` reports all")


def _about(trajectory: "Trajectory") -> str:
    return f"{trajectory.rollout_id} ({trajectory.name or 'no name'})"


def _write(text: str) -> None:
    sys.stdout.write(f"{printable(text)}\n")
