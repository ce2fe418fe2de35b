"""Write the end of docs/spec/recorders.md from the tables of the code: `uv run python -m docs.generate_masks`.

Invariant: what stands before `## Masks` on the page stays as it is.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from art_otel.conventions.masks import HASH, MASKS, Mask
from art_otel.conventions.value_limits import LIMITS, ValueLimit

PAGE: Final = Path(__file__).resolve().parent / "spec" / "recorders.md"

MASKS_TEXT: Final = """\
## Masks

`uv run python -m docs.generate_masks` generates this part and the next.

Some recorders and backends replace content with a mask, and others cut it. A mask was never sent or sampled. So
art-otel recognizes masks, and trains nothing of such a call. If a switch leaves out content entirely, this counts as
missing content ([how to switch it on](../how-to/capture-content.md#switch-content-on)).

A message is masked if one of these texts is its whole content, reasoning, refusal or arguments, or the whole of one of
its parts. An answer that only mentions such a text is still trained.

Some writers also replace parts of texts. A mask inside a text counts only if the call shows that this writer masked it:

- The call has an attribute of the writer (`redaction.masked.count`).
- An attribute that neither model nor prompt writes has the same mask (`user.email` is `<EMAIL_ADDRESS>`).
- Another text of the call is only this mask.

Otherwise, a placeholder in a prompt counts as text that the app sent. Hashes count as masks if messages of several
roles are hashes, or a whole prompt.
"""

LIMITS_TEXT: Final = """\
## Limits

A text counts as cut if it is the longest text of its span, and its length is one of these limits. For limits below
1,024, and for limits of any number, one of these is needed too: two texts of that length, one of them incomplete JSON;
a prompt and an answer whose length is a number that people choose (1,000; 512; 4,095); or three texts of that length. A
text that is whole JSON is not cut.

To avoid it, raise the limit, or take the spans before they are cut, with a
[collector's file](../how-to/dumps.md#files-of-a-collector).
"""


def recorders_page() -> str:
    """The page: what people wrote of it, and the tables."""
    written = PAGE.read_text(encoding="utf-8").partition("## Masks\n")[0]
    masks = _table(["written by", "text", "also inside of texts", "source"], map(_mask_row, (*MASKS, HASH)))
    limits = _table(["set by", "length", "of", "ends with", "source"], map(_limit_row, LIMITS))
    return f"{written}{MASKS_TEXT}\n{masks}\n{LIMITS_TEXT}\n{limits}"


def _mask_row(mask: Mask) -> list[str]:
    texts = ", ".join(f"`{example}`" for example in mask.examples) if mask is not HASH else "64 or 40 hex digits"
    return [mask.writer, texts, "no" if mask.inside is None else "yes", mask.source]


def _limit_row(limit: ValueLimit) -> list[str]:
    length = "any" if limit.length is None else f"{limit.length:,}"
    return [limit.setter, length, limit.unit, f"`{limit.ending}`" if limit.ending else "", limit.source]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    PAGE.write_text(recorders_page(), encoding="utf-8")
