"""Findings: what was found, each once, with the smallest input seen.

Invariant: two cases are one finding when they have the same signature.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.cases import make_case


@dataclass
class Findings:
    """`run` counts the cases of each target, `found` those of each signature."""

    folder: Path
    run: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    _smallest: dict[str, int] = field(default_factory=dict)

    def add(self, target: str, number: int, signature: str, story: str) -> None:
        """One case that broke a law."""
        self.found[signature] += 1
        data = make_case(target, number)
        if len(data) >= self._smallest.get(signature, len(data) + 1):
            return
        self._smallest[signature] = len(data)
        place = self.folder / re.sub(r"[^\w.]+", "-", signature)[:100]
        place.mkdir(parents=True, exist_ok=True)
        (place / "input.dump").write_bytes(data)
        (place / "story.txt").write_text(
            f"--target {target!r} --case {number}\n{signature}\n{story}\n", encoding="utf-8"
        )
        print(f"{signature}: --target {target!r} --case {number} ({len(data)} bytes)", flush=True)

    def summary(self) -> str:
        """Cases a target and findings."""
        run = "\n".join(f"{count:8} {target}" for target, count in self.run.items())
        found = "\n".join(f"{count:8} {signature}" for signature, count in self.found.most_common())
        return f"cases\n{run}\nfindings in {self.folder}\n{found or '    none'}"
