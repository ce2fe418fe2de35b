"""`art-otel view`: a page that shows trajectories, tokens and runs, or one file of it to share."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from art_otel.cli.serve import EndSignals
from art_otel.cli.terminal import counted
from art_otel.errors import UsageError

if TYPE_CHECKING:
    from art_otel.viewer.serving import Api

_PORT = 7777


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "view",
        help="look at a run and its rollouts in a browser",
        description="Open a page that shows what a run learned, which tasks fail, what trains and what goes wrong, and"
        " each rollout. Only this machine can open it. It only reads, except with --labels. With --html, it is written"
        " to one file that works without a server; with --say, its answers are printed.",
    )
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a dataset folder, a Parquet file, a run folder, or a spool; the page follows them while they grow",
    )
    parser.add_argument("--port", type=int, default=_PORT, metavar="N", help=f"default: {_PORT}; 0 chooses a free one")
    parser.add_argument("--no-open", action="store_true", help="print the address without opening a browser")
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="PATH",
        help="a tokenizer on this machine, for the texts of token ids: a folder as transformers saves it, or a"
        " tokenizer.json",
    )
    parser.add_argument(
        "--spans",
        action="append",
        default=[],
        metavar="DUMPS",
        help="the dumps that the dataset was made from; the page then shows all spans of a rollout; may be repeated",
    )
    parser.add_argument(
        "--labels",
        action="store_true",
        help="let the page write notes, labels and corrected rewards to _labels.jsonl in the dataset's folder",
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write selected rollouts to this file, and start no server"
    )
    parser.add_argument(
        "--rollout", action="append", default=[], metavar="ID", help="with --html: this rollout; may be repeated"
    )
    parser.add_argument(
        "--group", action="append", default=[], metavar="ID", help="with --html: this group; may be repeated"
    )
    parser.add_argument(
        "--where",
        metavar="QUERY",
        help="with --html or --say: the rollouts that the page shows under this address: the text after #/? in the"
        " browser, such as 'status=error&sort=reward'",
    )
    parser.add_argument(
        "--limit", type=int, metavar="N", help="with --html: the maximum number of rollouts (default: 100, 0 for all)"
    )
    parser.add_argument("--say", action="store_true", help="print the answers of the first page, and start no server")
    parser.add_argument("--json", action="store_true", help="with --say: print them as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve the page until the process is told to end, or write the file."""
    if arguments.say and arguments.html is not None:
        raise UsageError("--say prints and --html writes: give one of them")
    if arguments.json and not arguments.say:
        raise UsageError("--json is how --say prints; give --say too")
    selects = arguments.rollout or arguments.group or arguments.limit is not None
    if arguments.html is None and (selects or (arguments.where and not arguments.say)):
        raise UsageError(
            "--rollout, --group and --limit need --html, and --where needs --html or --say; without these, the page "
            "shows everything"
        )
    if (arguments.html is not None or arguments.say) and arguments.labels:
        raise UsageError(
            "--labels lets the page write labels, so it has no effect with --html or --say; --html shows the labels "
            "and notes that there are"
        )
    if not 0 <= arguments.port < 1 << 16:
        raise UsageError(f"--port {arguments.port}: give a number below 65536; 0 chooses a free one")
    if arguments.limit is not None and arguments.limit < 0:
        raise UsageError(f"--limit {arguments.limit}: give the largest number of rollouts, or 0 for all")
    api = _api(arguments)
    if arguments.say:
        return _say(api, arguments)
    return _serve(api, arguments) if arguments.html is None else _export(api, arguments)


def _api(arguments: argparse.Namespace) -> "Api":
    from art_otel.viewer.rollout import RecordedSpans  # noqa: PLC0415 # other verbs need no viewer
    from art_otel.viewer.serving import Api  # noqa: PLC0415 # as above
    from art_otel.viewer.snapshot import ViewedData  # noqa: PLC0415 # as above
    from art_otel.viewer.tokens import Tokenizer  # noqa: PLC0415 # as above

    tokenizer = None if arguments.tokenizer is None else Tokenizer(arguments.tokenizer)
    spans = RecordedSpans(arguments.spans) if arguments.spans else None
    return Api(
        data=ViewedData(arguments.paths, labels=arguments.labels, judge_at_once=arguments.html is None),
        tokenizer=tokenizer,
        spans=spans,
        live=arguments.html is None,
    )


def _serve(api: "Api", arguments: argparse.Namespace) -> int:
    from art_otel.http import Address  # noqa: PLC0415 # as above
    from art_otel.viewer.serving import Viewer  # noqa: PLC0415 # as above

    signals = EndSignals()
    viewer = Viewer(api, Address("127.0.0.1", arguments.port))
    viewer.start()
    if arguments.labels and api.data.unlabeled:
        names = ", ".join(api.data.unlabeled)
        sys.stderr.write(f"art-otel: no labels for {names}: labels are only kept beside a dataset in a folder\n")
    sys.stderr.write(f"art-otel: {viewer.url}\nart-otel: press Ctrl+C to stop\n")
    sys.stderr.flush()
    if not arguments.no_open:
        import webbrowser  # noqa: PLC0415 # only who opens one

        webbrowser.open(viewer.one_time_url())
    signals.wait()
    viewer.stop()
    return 0


def _say(api: "Api", arguments: argparse.Namespace) -> int:
    import msgspec  # noqa: PLC0415 # as above

    from art_otel.viewer.saying import as_text, say  # noqa: PLC0415 # as above
    from art_otel.viewer.serving import to_json  # noqa: PLC0415 # as above

    try:
        said = say(api.data.snapshot, arguments.where or "")
    finally:
        api.data.close()
    sys.stdout.write(f"{msgspec.json.format(to_json(said)).decode() if arguments.json else as_text(said)}\n")
    return 0


def _export(api: "Api", arguments: argparse.Namespace) -> int:
    from art_otel.viewer.sharing import ViewSelection, render_html  # noqa: PLC0415 # as above

    limit = 100 if arguments.limit is None else arguments.limit or None
    selection = ViewSelection(
        rollouts=tuple(arguments.rollout), groups=tuple(arguments.group), where=arguments.where or "", limit=limit
    )
    try:
        rendered = render_html(api, selection)
    finally:
        api.data.close()
    document = rendered.document.encode()
    arguments.html.write_bytes(document)
    left = f" of {rendered.matching:,}; --limit allows more" if rendered.rollouts < rendered.matching else ""
    sys.stderr.write(
        f"art-otel: {arguments.html}: {counted(rendered.rollouts, 'rollout')}{left}; {len(document) / 1e6:,.1f} MB\n"
    )
    return 0
