"""`art-otel export --list`: which trainers' files can be written here, and what each needs."""

import sys
from typing import TYPE_CHECKING, Any

from art_otel.cli.printable import printable, printable_json

if TYPE_CHECKING:
    from art_otel.exporting import Format, Installed


def list_exporters(*, as_json: bool) -> int:
    """Print the exporters that are installed: their formats, what these need, their options, or why one cannot load."""
    from art_otel.exporting import installed_exporters  # noqa: PLC0415 # pyarrow loads only for a verb that needs it

    exporters = installed_exporters()
    if as_json:
        sys.stdout.write(printable_json([_plain(one) for one in exporters]) + "\n")
        return 0
    if not exporters:
        sys.stdout.write("no exporter is installed; in a checkout of art-otel, for TRL: pip install ./exporters/trl\n")
    for one in exporters:
        sys.stdout.writelines(f"{printable(line)}\n" for line in _lines(one))
    return 0


def _lines(installed: "Installed") -> list[str]:
    from art_otel.exporting import options_of  # noqa: PLC0415 # as above

    where = "" if installed.distribution is None else f" ({installed.distribution})"
    if installed.exporter is None:
        return [f"{installed.name}{where}: cannot be loaded: {installed.problem}"]
    lines = [f"{installed.name}{where}: {installed.exporter.summary}"]
    for file_format in installed.exporter.formats:
        lines += [f"  {file_format.name}: {file_format.summary}", f"    needs {file_format.needs}"]
        lines += [f"    --option {one.name}={one.default}: {one.about}" for one in options_of(file_format)]
    return lines


def _plain(installed: "Installed") -> dict[str, Any]:
    formats = () if installed.exporter is None else installed.exporter.formats
    return {
        "name": installed.name,
        "distribution": installed.distribution,
        "problem": installed.problem,
        "summary": None if installed.exporter is None else installed.exporter.summary,
        "formats": [_plain_format(file_format) for file_format in formats],
    }


def _plain_format(file_format: "Format") -> dict[str, Any]:
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
