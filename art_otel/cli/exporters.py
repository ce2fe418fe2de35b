"""`art-otel exporters`: which trainers' files can be written here, and what each needs."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from art_otel.cli.printable import printable, printable_json

if TYPE_CHECKING:
    from art_otel.exporting import Installed, Kind


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "exporters",
        help="list the exporters that are installed, and what each needs",
        description="List the exporters that are installed: their kinds of files, what these need, their options, and"
        " the problem of each that cannot be loaded.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON: a list of exporters")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """List them."""
    from art_otel.exporting import installed_exporters  # noqa: PLC0415 # pyarrow loads only for a verb that needs it

    found = installed_exporters()
    if arguments.json:
        sys.stdout.write(printable_json([_plain(one) for one in found]) + "\n")
        return 0
    if not found:
        sys.stdout.write("no exporter is installed; in a checkout of art-otel, for TRL: pip install ./exporters/trl\n")
    for one in found:
        sys.stdout.writelines(f"{printable(line)}\n" for line in _lines(one))
    return 0


def _lines(installed: "Installed") -> list[str]:
    from art_otel.exporting import options_of  # noqa: PLC0415 # as above

    where = "" if installed.distribution is None else f" ({installed.distribution})"
    if installed.exporter is None:
        return [f"{installed.name}{where}: cannot be loaded: {installed.problem}"]
    lines = [f"{installed.name}{where}: {installed.exporter.summary}"]
    for kind in installed.exporter.kinds:
        lines += [f"  {kind.name}: {kind.summary}", f"    needs {kind.needs}"]
        lines += [f"    --set {one.name}={one.default}: {one.about}" for one in options_of(kind)]
    return lines


def _plain(installed: "Installed") -> dict[str, Any]:
    kinds = () if installed.exporter is None else installed.exporter.kinds
    return {
        "name": installed.name,
        "distribution": installed.distribution,
        "problem": installed.problem,
        "summary": None if installed.exporter is None else installed.exporter.summary,
        "kinds": [_plain_kind(kind) for kind in kinds],
    }


def _plain_kind(kind: "Kind") -> dict[str, Any]:
    from art_otel.exporting import options_of  # noqa: PLC0415 # as above

    return {
        "name": kind.name,
        "summary": kind.summary,
        "takes": kind.takes,
        "needs": kind.needs,
        "advantage": kind.advantage,
        "not_carried": dict(kind.not_carried),
        "options": {one.name: {"default": one.default, "about": one.about} for one in options_of(kind)},
    }
