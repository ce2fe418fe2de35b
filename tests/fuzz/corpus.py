"""Corpus: real dumps in every format and framing, by target.

Invariant: the same target gives the same dumps in the same order, in every process.
"""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

import pyarrow as pa

from tests.dumps import Request
from tests.sources.requests import prefixed, to_protobuf
from tests.sources.writers import PARQUET_WRITERS, WRITERS

TESTS = Path(__file__).parent.parent
MAX_DUMP_BYTES = 60_000
MIXTURES = "mixtures"
"""The target whose cases are made anew and not by damage."""

Structure: TypeAlias = Literal["json", "protobuf", "parquet", "bytes"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """`dumps` are the sound files to damage, `structure` is what they can be taken apart as."""

    structure: Structure
    dumps: Callable[[], list[bytes]]


def recordings(pattern: str = "*/*.jsonl") -> list[Path]:
    """The recordings that are small enough to convert often."""
    found = sorted((TESTS / "recordings").glob(pattern))
    return [path for path in found if path.stat().st_size <= MAX_DUMP_BYTES]


def _spans_only() -> list[list[Request]]:
    paths = [path for path in recordings() if ".logs." not in path.name]
    return [[json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for path in paths]


def _with_logs() -> list[bytes]:
    """A recording and its log records in one file, which a dump may well be."""
    dumps = []
    for path in recordings():
        logs = path.with_suffix(".logs.jsonl")
        dumps.append(path.read_bytes() + (logs.read_bytes() if logs in recordings() else b""))
    return dumps


def _requests() -> list[list[Request]]:
    return [[json.loads(line) for line in dump.splitlines()] for dump in _with_logs()]


def _protobuf() -> list[bytes]:
    return [prefixed(*map(to_protobuf, requests)) for requests in _requests()]


def _unframed_protobuf() -> list[bytes]:
    return [to_protobuf(request) for requests in _requests() for request in requests]


def _zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data))


def _framed(messages: list[bytes]) -> bytes:
    return prefixed(*map(_zstd, messages))


def _compressed() -> list[bytes]:
    texts, binaries = _with_logs()[::5], _protobuf()[::5]
    framed_texts = [_framed(text.splitlines()) for text in texts]
    framed_binaries = [_framed([to_protobuf(request) for request in requests]) for requests in _requests()[::5]]
    members = [
        gzip.compress(text[: len(text) // 2], mtime=0) + gzip.compress(text[len(text) // 2 :], mtime=0)
        for text in texts
    ]
    whole = [compress(data) for compress in (_zstd, _gzip) for data in (*texts, *binaries)]
    return [*framed_texts, *framed_binaries, *members, *whole]


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _written(write: Callable[[list[Request]], bytes]) -> Callable[[], list[bytes]]:
    return lambda: [write(requests) for requests in _spans_only()[::3]]


def _exports(pattern: str) -> Callable[[], list[bytes]]:
    return lambda: [path.read_bytes() for path in sorted((TESTS / "exports").glob(pattern))]


TARGETS: dict[str, Target] = {
    "otlp-json": Target(structure="json", dumps=_with_logs),
    MIXTURES: Target(structure="json", dumps=_with_logs),
    "otlp-protobuf": Target(structure="protobuf", dumps=_protobuf),
    "otlp-protobuf unframed": Target(structure="protobuf", dumps=_unframed_protobuf),
    "compressed": Target(structure="bytes", dumps=_compressed),
    **{name: Target(structure="json", dumps=_written(write)) for name, write in WRITERS.items()},
    "exports": Target(structure="json", dumps=_exports("*.json")),
    **{
        f"{name} Parquet": Target(structure="parquet", dumps=_written(write)) for name, write in PARQUET_WRITERS.items()
    },
    "exports Parquet": Target(structure="parquet", dumps=_exports("*.parquet")),
}


@cache
def dumps_of(target: str) -> list[bytes]:
    """The sound dumps of a target."""
    return TARGETS[target].dumps()
