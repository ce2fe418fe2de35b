"""What scrubbing costs, and what it takes for a secret in public text: to be looked at by hand.

    uv run python -m tests.benchmarks.scrubbing FOLDER…

Reads every text file below the folders, each once whatever its copies, prints each hit with its kind and place, and the
bytes and hits by kind. `--kind` leaves out all others. What is printed is of public text; do not give it anything else.
"""

import argparse
import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

from art_otel.scrubbing import CONTENT_PATTERNS, PATTERNS, Hits, Scrubber, SecretPattern

_LARGEST: Final = 8 << 20
_BINARY: Final = b"\0"
_ROUNDS: Final = 20
_PROMPT: Final = 100_000


def texts(folders: list[Path]) -> Iterator[tuple[Path, str]]:
    """Every text file, once."""
    seen: set[bytes] = set()
    for path in sorted(path for folder in folders for path in folder.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST:
            continue
        content = path.read_bytes()
        digest = hashlib.blake2b(content, digest_size=16).digest()
        if digest not in seen and _BINARY not in content[:8192]:
            seen.add(digest)
            yield path, content.decode("utf-8", errors="replace")


def hits_in(text: str, patterns: tuple[SecretPattern, ...]) -> Iterator[tuple[str, str]]:
    """The kind and the text of every secret."""
    for pattern in patterns:
        if pattern.mark in text:
            for match in pattern.regex.finditer(text):
                secret = match[(pattern.regex.groups and "secret") or 0]
                if pattern.is_secret(secret):
                    yield pattern.kind, secret


def report(folders: list[Path], kinds: list[str], patterns: tuple[SecretPattern, ...]) -> list[str]:
    """Print the hits; gives a sample of texts of the length of a long prompt."""
    scrubber, counts, distinct, read, files = Scrubber(), Counter[str](), set[str](), 0, 0
    sample: list[str] = []
    for path, text in texts(folders):
        files += 1
        read += len(text.encode())
        found = list(hits_in(text, patterns))
        if patterns == PATTERNS:
            assert bool(found) == scrubber.holds_secret(text), path  # the quick look misses nothing
        for kind, secret in found:
            counts[kind] += 1
            if secret not in distinct and (not kinds or kind in kinds):
                print(f"{kind}\t{path}\t{secret[:60]!r}")
            distinct.add(secret)
        if files % 50 == 0 and len(text) >= _PROMPT and len(sample) < _ROUNDS:
            sample.append(json.dumps([{"role": "user", "content": text[:_PROMPT]}]))
    print(f"{files} files, {read / 1e6:.0f} MB, {sum(counts.values())} hits, {len(distinct)} distinct: {dict(counts)}")
    return sample


def cost(sample: list[str]) -> None:
    """Print µs for 100 KB that are new, and for a prompt that goes on from one that was read."""
    new: list[float] = []
    again: list[float] = []
    for text in sample:
        scrubber = Scrubber()
        longer = text[:-1] + ', {"role": "assistant", "content": "Done."}]'
        for times, said in ((new, text), (again, longer)):
            begin = time.perf_counter()
            scrubber.text(said, Hits())
            times.append((time.perf_counter() - begin) * 1e6)
    if sample:
        print(f"{len(sample)} prompts of 100 KB: median {median(new):.0f} µs, slowest {max(new):.0f} µs;")
        print(f"as the beginning of the next prompt: median {median(again):.0f} µs")


def main() -> None:
    """Read, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--kind", action="append", default=[], help="print hits of this kind only")
    parser.add_argument("--content", action="store_true", help="e-mail addresses and passwords in URLs too")
    given = parser.parse_args()
    cost(report(given.folders, given.kind, PATTERNS + (CONTENT_PATTERNS if given.content else ())))


if __name__ == "__main__":
    main()
