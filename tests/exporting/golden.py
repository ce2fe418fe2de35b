"""Golden files: what an exporter writes of the samples, kept in its testdata/.

`ART_OTEL_GOLDEN=1 pytest exporters` writes them anew; look at what changed before you keep it.
"""

import os
from pathlib import Path

import pyarrow.parquet as pq

from art_otel.exporting import export

EVERYTHING = {"allow_incomplete": True, "status": ("ok", "error", "cancelled", "unfinished")}


def check_golden(golden: Path, rollouts, exporter: str, file_format: str, tmp_path: Path, **config) -> None:
    """The single file of the format is the golden one: byte for byte, of Parquet by its schema and its rows."""
    out = tmp_path / golden.name
    export(rollouts, exporter, out, format=file_format, options=config, **EVERYTHING)
    if os.environ.get("ART_OTEL_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_bytes(out.read_bytes())
    assert _content(out) == _content(golden), f"{golden} differs: {__doc__}"


def _content(path: Path) -> object:
    """Bytes; not of Parquet, whose bytes name the version of the library that wrote them."""
    if path.suffix != ".parquet":
        return path.read_bytes()
    table = pq.read_table(path)
    return table.schema, table.to_pylist()
