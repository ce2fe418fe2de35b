"""Files: a recording as it lies in the folder, and how two of one name differ.

Invariant: no file names a path of the machine that it was made on.
"""

import gzip
import json
import re
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.conversions import with_logs
from tests.dialects.recording.environments import FOLDER
from tests.dialects.recording.server import RecordingServer

_ROOT: Final = Path(__file__).resolve().parents[3]


def write(folder: Path, name: str, server: RecordingServer, *, hidden: list[str]) -> list[Path]:
    """Write spans, log records and truth, without the hidden paths; those of the harder conversation are compressed."""
    texts = {
        f"{name}.jsonl": _lines(server.spans),
        f"{name}.logs.jsonl": _lines(server.logs),
        f"{name}.truth.json": json.dumps(server.truth, indent=1) + "\n",
    }
    written = []
    for file, text in texts.items():
        if text:
            is_compressed = name.startswith("harder_") and file.endswith(".jsonl")
            path = folder / (f"{file}.gz" if is_compressed else file)
            data = _scrubbed(text, hidden).encode()
            path.write_bytes(gzip.compress(data, mtime=0) if is_compressed else data)
            written.append(path)
    return written


def _lines(requests: list[dict]) -> str:
    return "".join(json.dumps(request, separators=(",", ":"), ensure_ascii=False) + "\n" for request in requests)


def _scrubbed(text: str, hidden: list[str]) -> str:
    text = re.sub(rf"{re.escape(str(FOLDER))}/\w+/lib/python[\d.]+/", "", text)
    text = re.sub(rf"{re.escape(str(FOLDER))}/\w+/", "", text)
    for path in (*hidden, f"{_ROOT}/tests/dialects/recording/", str(_ROOT), str(Path.home())):
        text = text.replace(path, "")
    return text.replace(json.dumps(socket.gethostname()), '"host"')


def difference(old: Path, new: Path, name: str) -> str:
    """Say which attributes of which spans came and went; nothing where none did, or there was no old one."""
    if not with_logs(old / f"{name}.jsonl"):
        return ", new"
    before, after = (Counter(_attributes(with_logs(folder / f"{name}.jsonl")[0])) for folder in (old, new))
    came, went = after - before, before - after
    told = [f"\n  +{times} {one}" for one, times in came.items()]
    return "".join(told + [f"\n  -{times} {one}" for one, times in went.items()])


def _attributes(path: Path) -> Iterator[str]:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    for line in text.splitlines():
        for resource in json.loads(line)["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                about = scope["scope"].get("name")
                for span in scope["spans"]:
                    yield f"{about}: {span['name']}"
                    yield from (f"{about}: {span['name']}: {one['key']}" for one in span.get("attributes", ()))
