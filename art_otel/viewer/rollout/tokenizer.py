"""Tokenizer: the texts of token ids, from a tokenizer on this machine.

Invariant: nothing is fetched; without a tokenizer ids have no text.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from art_otel.errors import UsageError


class Tokenizer:
    """The tokenizer of a folder (`tokenizer.json` and its configuration) or of a `tokenizer.json`."""

    def __init__(self, path: Path) -> None:
        self._decode = _decoder(path)
        self._texts: dict[int, str] = {}

    def text(self, ids: Sequence[int]) -> str:
        """The ids as one text."""
        return self._decode(list(ids))

    def texts(self, ids: Sequence[int]) -> list[str]:
        """The text of each id by itself; a token may be a part of a character."""
        for token in set(ids) - self._texts.keys():
            self._texts[token] = self._decode([token])
        return [self._texts[token] for token in ids]


def _decoder(path: Path) -> Callable[[list[int]], str]:
    """Load the tokenizer, and return what decodes ids with it. Raises UsageError where none can be loaded."""
    try:
        if path.is_file():
            from tokenizers import Tokenizer as Fast  # noqa: PLC0415 # an extra

            fast: Any = Fast.from_file(str(path))
            return lambda ids: str(fast.decode(ids, skip_special_tokens=False))
        import transformers  # noqa: PLC0415 # an extra

        library: Any = transformers  # it is not typed
        slow: Any = library.AutoTokenizer.from_pretrained(str(path), local_files_only=True)
        return lambda ids: str(slow.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
    except ImportError as error:
        raise UsageError(f"--tokenizer needs the extra: pip install 'art-otel[tokenizer]' ({error})") from error
    except Exception as error:  # the library raises a plain Exception for files that it does not understand
        raise UsageError(f"--tokenizer {path}: no tokenizer can be loaded: {error}") from error
