"""`art-otel export`: trajectories as a trainer reads them, and a report of what it does not get."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from art_otel.cli.arguments import destination
from art_otel.cli.terminal import by_reason, counted, printable, printable_json
from art_otel.errors import UsageError

if TYPE_CHECKING:
    from art_otel.exporting import ExportReport, Format, Installed

_ADVANTAGES: Final = (
    "grpo",
    "grpo_sample",
    "dr_grpo",
    "rloo",
    "centered",
    "grpo_batch",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "gdpo",
    "none",
)
_CREDITS: Final = ("outcome_reward", "step_reward", "call_reward")
_OF_IDS: Final = ("closed_streams", "images")
"""What no format of texts takes."""

_STATUSES: Final = ("ok", "error", "cancelled", "unfinished")
_NONE_INSTALLED: Final = "no exporter is installed; in a checkout of art-otel, for TRL: pip install ./exporters/trl"


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "export",
        help="write a dataset in the format of a trainer",
        description="Write the trajectories of a dataset in the format of a trainer. A report says what was left"
        " out, and what the format has no place for. `art-otel export --list` lists the trainers.",
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="dataset folders, Parquet files, or globs of them")
    parser.add_argument("--list", action="store_true", help="list the installed exporters, and what each needs")
    to = parser.add_argument(
        "--to",
        nargs="?",
        metavar="NAME",
        help="the exporter (without NAME: list the exporters and formats that can write these trajectories)",
    )
    to.completer = _complete_exporter  # pyright: ignore[reportAttributeAccessIssue] # where argcomplete looks
    parser.add_argument(
        "--format",
        metavar="NAME",
        help="one of the exporter's formats (default: the best one that can write these trajectories: with token ids,"
        " logprobs, groups and rewards one that is trained with these, otherwise conversations)",
    )
    parser.add_argument(
        "-o", "--out", type=destination, metavar="OUT", help="a folder, or a file with the format's suffix"
    )
    parser.add_argument(
        "--advantage",
        choices=_ADVANTAGES,
        help="how rewards of a group become advantages (default: the trainer's own way, if it has advantages)",
    )
    credit = parser.add_argument(
        "--credit",
        default=_CREDITS[0],
        metavar="CREDIT",
        help="which reward a completion is trained with: outcome_reward (the default: the final reward),"
        " step_reward or call_reward; with a reward's name, 'outcome_reward(style)'; or 'weighted(correct=1,"
        " style=0.2)' or 'discounted(0.99)'",
    )
    credit.completer = _complete_credit  # pyright: ignore[reportAttributeAccessIssue] # where argcomplete looks
    parser.add_argument(
        "--reward",
        metavar="NAME",
        help="the reward that counts: that of the whole rollout with this name, instead of the final one",
    )
    parser.add_argument(
        "--split",
        action="append",
        metavar="NAME|SHARES",
        help="only this split, '*' for all; may be repeated (default: all but val, validation, test and eval). Shares"
        " such as 0.9/0.1 write a file for train and one for val, and 0.8/0.1/0.1 one for test, too: rollouts of one"
        " group, or with one first prompt, are never in two of them",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="which tasks are in which share of --split (default: 0)"
    )
    parser.add_argument(
        "--dedupe",
        action="store_true",
        help="for formats of messages, and others whose trainer imitates every example: write only the first of equal"
        " conversations",
    )
    _add_selection(parser)
    parser.add_argument("--max-tokens", type=int, metavar="N", help="leave out longer sequences")
    parser.add_argument(
        "--min-reward",
        type=float,
        metavar="X",
        help="for formats whose trainer imitates every conversation (such as sft): leave out rollouts with a lower"
        " reward, or without one",
    )
    parser.add_argument(
        "--images",
        choices=("mask", "placeholders"),
        help="for formats of token ids that carry no images, audio and files: what happens to completions sampled"
        " behind these, of which the ids have placeholders alone: mask (the default) makes them only context, or"
        " placeholders to write them",
    )
    parser.add_argument(
        "--option", action="append", default=[], type=_option, metavar="NAME=VALUE", help="an option of the format"
    )
    parser.add_argument("--json", action="store_true", help="print the report, or the list, as JSON")
    parser.set_defaults(run=run)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    """Add what chooses rollouts and completions, as `data.selection` describes it."""
    parser.add_argument(
        "--status", action="append", choices=_STATUSES, help="only this status; may be repeated (default: ok)"
    )
    parser.add_argument(
        "--rollouts",
        type=Path,
        metavar="FILE",
        help="only rollouts whose ids are in this file, one id per line, as 'Save ids' of `art-otel view` writes it",
    )
    parser.add_argument(
        "--where",
        metavar="QUERY",
        help="only rollouts with these rewards, metadata or fields, such as 'correctness>=0.5&difficulty=easy'"
        " (>=, <=, >, <, = and !=), and that the list of `art-otel view` shows under this address: the text after #/t?"
        " in the browser, such as 'label=good&min_reward=0.5'",
    )
    parser.add_argument("--allow-incomplete", action="store_true", help="also incomplete trajectories")
    parser.add_argument(
        "--allow-reason",
        action="append",
        metavar="REASON",
        help="also trajectories incomplete for this reason alone, such as 'unrecorded answer'; may be repeated",
    )
    parser.add_argument(
        "--models",
        metavar="NAMES",
        help="only completions of these request models: names or globs separated by commas, ! excludes"
        " ('policy-*,!*judge*'); * takes all",
    )
    parser.add_argument("--agents", metavar="NAMES", help="only completions of these agents; written like --models")
    parser.add_argument(
        "--training-step", metavar="STEPS", help="only rollouts of these training steps, such as 3,10-19 (10 to 19)"
    )
    parser.add_argument(
        "--policy-version",
        metavar="VERSION",
        help="only rollouts of which this version sampled every call",
    )
    parser.add_argument(
        "--max-staleness",
        metavar="N",
        help="with --policy-version: also rollouts of versions that are up to N older, by their numbers",
    )
    parser.add_argument(
        "--context-exceeded",
        choices=("keep", "mask", "drop"),
        help="rollouts that ended because their context was exceeded: train them, keep them as context only, or "
        "leave them out (default: keep)",
    )
    parser.add_argument(
        "--closed-streams",
        choices=("mask", "train"),
        help="for formats of token ids: a stream that the app closed before its end is kept as context only, or "
        "trained (default: mask)",
    )
    parser.add_argument(
        "--length",
        choices=("keep", "mask", "drop"),
        help="completions that were cut at max_tokens or by a content filter: train them, keep them as context "
        "only, or leave their rollouts out"
        " (default: keep, and mask for conversations and preferences)",
    )
    parser.add_argument(
        "--constrained",
        choices=("keep", "mask"),
        help="completions whose request allowed only some tokens, such as those of a schema: train them, or keep them"
        " as context only (default: keep)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Export and tell what came out. Raises UsageError for an option that is missing."""
    if arguments.list:
        return _list_exporters(as_json=arguments.json)
    if arguments.paths and not arguments.to:
        raise UsageError(f"choose an exporter with --to NAME; {_what_can_be_written(arguments)}")
    required = {"PATH": arguments.paths, "--to": arguments.to, "--out": arguments.out}
    if missing := [name for name, value in required.items() if not value]:
        raise UsageError(f"also give {', '.join(missing)}; `art-otel export --list` lists the exporters")
    from art_otel.exporting import DEFAULT, export  # noqa: PLC0415 # numpy and pyarrow load only for a verb that needs them

    advantage = arguments.advantage or DEFAULT
    rollouts, where = _chosen(arguments)
    report = export(
        arguments.paths,
        arguments.to,
        arguments.out,
        format=arguments.format,
        options=dict(arguments.option),
        advantage=None if advantage == "none" else advantage,
        **_selection(arguments),
        rollouts=rollouts,
        where=where,
        reward=arguments.reward,
        max_tokens=arguments.max_tokens,
        min_reward=arguments.min_reward,
        dedupe=arguments.dedupe,
        seed=arguments.seed,
    )
    if arguments.json:
        sys.stdout.write(printable_json(msgspec.to_builtins(report)) + "\n")
    else:
        sys.stdout.writelines(f"{printable(line)}\n" for line in _lines(report))
        if arguments.format is None:
            sys.stdout.writelines(f"{printable(line)}\n" for line in _other_formats(report))
    if report.unsuccessful and arguments.min_reward is None:
        used = counted(report.trajectories_used, "trajectory", "trajectories")
        sys.stderr.write(
            f"art-otel: warning: {report.unsuccessful:,} of {used} had a reward of 0 or less, and the trainer imitates"
            " them like the others; --min-reward X leaves out those with less\n"
        )
    if report.other_rewards:
        sys.stderr.write(
            f"art-otel: warning: no rollout has the reward that --credit {arguments.credit} asks for; the recorded "
            f"rewards are named {printable(', '.join(report.other_rewards))}\n"
        )
    if report.load is not None and not arguments.json:
        sys.stderr.flush()
        sys.stdout.write(f"       load  {printable(report.load)}\n")
    return 0


def _selection(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options that choose rollouts and completions, and the credit, as far as they were given."""
    from art_otel.data.option_texts import read_options  # noqa: PLC0415 # as above

    allowed = {"allow_incomplete": arguments.allow_incomplete or arguments.allow_reason or False}
    lists = ("split", "status")
    texts = (
        "credit", "models", "agents", "training_step", "policy_version", "max_staleness", "context_exceeded", "length",
        "closed_streams", "constrained", "images",
    )  # fmt: skip
    values = {name: value for name in lists if (value := getattr(arguments, name))}
    return allowed | values | read_options({name: getattr(arguments, name) or "" for name in texts})


def _complete_exporter(**_: object) -> list[str]:
    """The exporters that a shell offers: the names of their entry points, so a tab loads none of them, and no numpy."""
    from importlib.metadata import entry_points  # noqa: PLC0415 # slow to load, and only a shell asks here

    return sorted({entry.name for entry in entry_points(group="art_otel.exporters")})


def _complete_credit(**_: object) -> tuple[str, ...]:
    """The credits that a shell offers."""
    return _CREDITS


def _chosen(arguments: argparse.Namespace) -> tuple[set[str] | None, str | None]:
    """The ids that --rollouts and the viewer's part of --where choose, None where neither does; and the conditions.

    Raises UsageError where they choose none.
    """
    listed = None if arguments.rollouts is None else _ids_in(arguments.rollouts, arguments.paths)
    if arguments.where is None:
        return listed, None
    from art_otel.viewer.listing import is_list_filter  # noqa: PLC0415 # as above

    parts = [part for part in arguments.where.rpartition("#/t?")[2].split("&") if part]
    of_list = [part for part in parts if is_list_filter(part)]
    conditions = "&".join(part for part in parts if not is_list_filter(part)) or None
    chosen = listed
    if of_list or not conditions:
        shown = _shown(arguments.paths, "&".join(of_list))
        chosen = shown if listed is None else shown & listed
    if chosen is not None and not chosen:
        raise UsageError(f"--where {arguments.where}: chooses no rollout{'' if listed is None else ' of --rollouts'}")
    return chosen, conditions


def _ids_in(file: Path, paths: Sequence[str]) -> set[str]:
    """The ids that the lines of a file hold, of which some have to be in the data."""
    from art_otel.store import find_all_files, groups_of, read_keys  # noqa: PLC0415 # as above
    from art_otel.trajectories import plain_id  # noqa: PLC0415 # as above

    ids = set(file.read_text(encoding="utf-8-sig", errors="replace").split("\n")) - {""}
    groups = [group for data in find_all_files(paths) for group in groups_of(data)]
    given = len(ids)
    ids |= {plain_id(one) for one in ids}
    known = ids & {rollout_id for keys in read_keys(groups) for rollout_id, _, _ in keys}
    told = f"{file}: {len(known):,} of {counted(given, 'id')} {'is' if given == 1 else 'are'} in the data"
    if not known:
        raise UsageError(
            f"{told}; it must contain rollout ids, one per line, as `Save ids` of `art-otel view` writes them"
        )
    sys.stderr.write(f"art-otel: {printable(told)}\n")
    return known


def _shown(paths: Sequence[str], where: str) -> set[str]:
    """The ids of the rollouts that the viewer's list shows under this address."""
    from art_otel.viewer.listing import list_rows, read_address  # noqa: PLC0415 # as above
    from art_otel.viewer.snapshot import ViewedData  # noqa: PLC0415 # as above

    data = ViewedData(paths)
    try:
        rows = list_rows(data.snapshot, read_address(where))
        return {record["rollout_id"] for record in data.snapshot.outlines.records(rows)}
    finally:
        data.close()


def _what_can_be_written(arguments: argparse.Namespace) -> str:
    """The exporters and formats that give a record of the trajectories one has."""
    from art_otel.exporting import installed_exporters, writable  # noqa: PLC0415 # as above

    exporters = [one.exporter for one in installed_exporters() if one.exporter is not None]
    if not exporters:
        return _NONE_INSTALLED
    chosen = {name: value for name, value in _selection(arguments).items() if name not in ("credit", *_OF_IDS)}
    chosen["models"] = "*"  # which of them to train is asked when something is written
    found = writable(arguments.paths, exporters, **chosen)
    shown = [f"{name} (--format {' | '.join(formats)})" for name, formats in found.items() if formats]
    if not shown:
        names = ", ".join(exporter.name for exporter in exporters)
        return f"none of those installed ({names}) can write these trajectories; `--list` shows what each needs"
    return f"these trajectories fit {', '.join(shown)}"


def _other_formats(report: "ExportReport") -> Iterator[str]:
    """That the format was chosen, the formats of the exporter that were not, and what these need."""
    from art_otel.exporting import find_exporter  # noqa: PLC0415 # as above

    yield f"     format  {report.format}: the best of {report.exporter} that can write these trajectories"

    for file_format in find_exporter(report.exporter).formats:
        if file_format.name != report.format:
            yield f"       also  --format {file_format.name}: {file_format.summary}; needs {file_format.needs}"


def _lines(report: "ExportReport") -> Iterator[str]:
    trajectories = counted(report.trajectories, "trajectory", "trajectories")
    left_out = by_reason(report.trajectories_skipped, "left out")
    yield f"         in  {trajectories}: {report.trajectories_used:,} used, {left_out}"
    records = counted(report.records, "record")
    yield f"        out  {records} of {report.exporter} {report.format} in {_named(report.files)}"
    for (name, count), file in zip(report.parts.items(), report.files, strict=False):
        yield f"      {name:>5}  {counted(count, 'record')} in {file}"
    for reason, count in report.skipped.items():
        yield f"   left out  {reason}: {count:,}"
    for what, count in report.changed.items():
        yield f"    changed  {what}: {count:,}"
    for name, lost in report.not_carried.items():
        if lost.trajectories != 0:
            count = "" if lost.trajectories is None else f" of {lost.trajectories:,}"
            yield f"not carried  {name}{count}: {lost.why}"
    for reason, help_ in report.helps.items():
        yield f"       help  {reason}: {help_}"


def _named(files: tuple[str, ...]) -> str:
    if not files:
        return "no file"
    return files[0] if len(files) == 1 else f"{files[0]} and {counted(len(files) - 1, 'more file')}"


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=VALUE")
    return name, value


def _list_exporters(*, as_json: bool) -> int:
    """Print the exporters that are installed: their formats, what these need, their options, or why one cannot load."""
    from art_otel.exporting import installed_exporters  # noqa: PLC0415 # pyarrow loads only for a verb that needs it

    exporters = installed_exporters()
    if as_json:
        sys.stdout.write(printable_json([_exporter_json(one) for one in exporters]) + "\n")
        return 0
    if not exporters:
        sys.stdout.write(f"{_NONE_INSTALLED}\n")
    for one in exporters:
        sys.stdout.writelines(f"{printable(line)}\n" for line in _described(one))
    return 0


def _described(installed: "Installed") -> list[str]:
    from art_otel.exporting import options_of  # noqa: PLC0415 # as above

    where = "" if installed.distribution is None else f" ({installed.distribution})"
    if installed.exporter is None:
        return [f"{installed.name}{where}: cannot be loaded: {installed.problem}"]
    lines = [f"{installed.name}{where}: {installed.exporter.summary}"]
    for file_format in installed.exporter.formats:
        lines += [f"  {file_format.name}: {file_format.summary}", f"    needs {file_format.needs}"]
        lines += [f"    --option {one.name}={one.default}: {one.about}" for one in options_of(file_format)]
    return lines


def _exporter_json(installed: "Installed") -> dict[str, Any]:
    formats = () if installed.exporter is None else installed.exporter.formats
    return {
        "name": installed.name,
        "distribution": installed.distribution,
        "problem": installed.problem,
        "summary": None if installed.exporter is None else installed.exporter.summary,
        "formats": [_format_json(file_format) for file_format in formats],
    }


def _format_json(file_format: "Format") -> dict[str, Any]:
    from art_otel.exporting import options_of  # noqa: PLC0415 # as above

    return {
        "name": file_format.name,
        "summary": file_format.summary,
        "input": file_format.input,
        "needs": file_format.needs,
        "advantage": file_format.advantage,
        "not_carried": dict(file_format.not_carried),
        "options": {one.name: {"default": one.default, "about": one.about} for one in options_of(file_format)},
    }
