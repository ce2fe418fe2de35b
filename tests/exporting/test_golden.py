"""Golden files: what each format writes of the samples, kept in the exporter's testdata/.

`ART_OTEL_GOLDEN=1 pytest tests/exporting/test_golden.py` writes them anew; look at what changed before you keep it.
"""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from art_otel.exporting import export
from tests.exporting.exported import EVERY
from tests.exporting.samples import samples

EXPORTERS = Path(__file__).parent.parent.parent / "exporters"


@pytest.mark.parametrize(
    ("exporter", "file_format", "name", "options"),
    [
        ("art", "trajectories", "trajectories.jsonl", {}),
        ("nemogym", "rollouts", "rollouts.jsonl", {}),
        ("openai", "sft", "sft.jsonl", {}),
        ("openai", "preference", "preference.jsonl", {}),
        ("openenv", "traces", "traces.jsonl", {}),
        ("primerl", "samples", "samples.jsonl", {}),
        ("skyrl", "rollouts", "rollouts.jsonl", {}),
        ("tinker", "datums", "datums.jsonl", {}),
        ("trl", "sft", "sft.parquet", {}),
        ("trl", "chat", "chat.parquet", {}),
        ("trl", "chat", "messages.parquet", {"layout": "messages"}),
        ("trl", "dpo", "dpo.parquet", {}),
        ("trl", "grpo", "grpo.parquet", {}),
        ("verl", "sft", "sft.parquet", {}),
        ("verl", "rollouts", "rollouts.parquet", {}),
        ("verl", "prompts", "prompts.parquet", {}),
    ],
)
def test_the_file_is_the_golden_one(tmp_path, exporter, file_format, name, options):
    golden, out = EXPORTERS / exporter / "testdata" / name, tmp_path / name
    export(samples(), exporter, out, format=file_format, options=options, **EVERY)
    if os.environ.get("ART_OTEL_GOLDEN"):
        golden.write_bytes(out.read_bytes())
    assert content(out) == content(golden), f"{golden} differs: {__doc__}"


def content(path: Path) -> object:
    """Bytes; not of Parquet, whose bytes name the version of the library that wrote them."""
    if path.suffix != ".parquet":
        return path.read_bytes()
    table = pq.read_table(path)
    return table.schema, table.to_pylist()
