import hashlib
from pathlib import Path
import msgspec
import pyarrow as pa, pyarrow.parquet as pq
from art_otel.store.encode import encode_batches, weighed_row, WEIGHT
from art_otel.store.schema import SCHEMA
from art_otel.store.encoded_group import _writer_options


class Part(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    rows: int
    bytes: int
    sha256: str


def write_part(trajectories, path, number):
    rows = 0
    with pq.ParquetWriter(str(path), SCHEMA, **_writer_options()) as w:
        for b in encode_batches(map(weighed_row, trajectories)):
            t = pa.Table.from_batches([b]).drop_columns([WEIGHT]).replace_schema_metadata(SCHEMA.metadata)
            rows += t.num_rows
            w.write_table(t)
        w.add_key_value_metadata(SCHEMA.metadata)
    data = Path(path).read_bytes()
    sha = hashlib.sha256(data).hexdigest()
    return Part(name=f"part-{number:05d}-{sha[:8]}.parquet", rows=rows, bytes=len(data), sha256=sha)
