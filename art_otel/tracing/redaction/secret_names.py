"""Secret names: whose values are secrets whatever they look like.

Invariant: in names of attributes many words count; inside of content (keys of JSON objects) only names of headers and
keys do, because passwords and tokens of a task are what an agent works with, and what it learns from.
"""

import re
from functools import lru_cache
from typing import Final

_OF_ATTRIBUTES: Final = re.compile(
    r"(authorization|cookie|password|passwd|passphrase|secret|token|api_?key|access_?key|private_?key|credentials?)$"
)
_OF_KEYS: Final = re.compile(r"(?:^|[._])(authorization|api_?key|secret_?access_?key)$")
_SPECIAL_TOKEN: Final = re.compile(r"(?:bos|cls|eos|mask|pad|sep|stop|unk)_token$")
"""Tokens of a vocabulary."""


@lru_cache(maxsize=4096)
def kind_of_attribute(name: str) -> str | None:
    """The kind of secret that an attribute of this name holds."""
    return _kind(_OF_ATTRIBUTES, name)


@lru_cache(maxsize=4096)
def kind_of_key(name: str) -> str | None:
    """The kind of secret that stands under this key in a JSON object."""
    return _kind(_OF_KEYS, name)


def _kind(names: re.Pattern[str], name: str) -> str | None:
    plain = name[-64:].lower().replace("-", "_")
    found = names.search(plain)
    if found is None or _SPECIAL_TOKEN.search(plain) is not None:
        return None
    return found[1].replace("apikey", "api_key").replace("_", " ")
