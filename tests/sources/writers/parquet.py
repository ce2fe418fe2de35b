"""Where the real exports lie, and Parquet of any rows."""

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

EXPORTS = Path(__file__).parent.parent.parent / "exports"


def parquet(table: pa.Table, **options) -> bytes:
    """A table as the bytes of a file."""
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()
