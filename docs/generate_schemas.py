"""Write the JSON schemas in docs/spec/ from the code: `uv run python docs/generate_schemas.py`."""

import json
from inspect import cleandoc
from pathlib import Path
from typing import Any, Final

import msgspec

from art_otel.store import ConversionReport, Manifest
from art_otel.trajectories import trajectory_schema

SPEC: Final = Path(__file__).with_name("spec")


def schema_files() -> dict[Path, str]:
    """The text of each file."""
    schemas = {"trajectory": trajectory_schema(), "report": report_schema()}
    return {
        SPEC / f"{name}.schema.json": json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        for name, schema in schemas.items()
    }


def report_schema() -> dict[str, Any]:
    """The schema of `_report.json`: the account of a conversion, and the manifest of what it wrote."""
    parts, records = msgspec.json.schema_components([ConversionReport, Manifest], ref_template="#/$defs/{name}")
    for record in records.values():
        if "description" in record:
            record["description"] = cleandoc(record["description"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "_report.json",
        "allOf": [*parts],
        "$defs": records,
    }


if __name__ == "__main__":
    for path, text in schema_files().items():
        path.write_text(text, encoding="utf-8")
