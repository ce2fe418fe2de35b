"""Modes: what is done to the secrets that are found."""

from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["on", "content", "mark"]
"""`on` replaces what has a precise form or a secret name, `content` also e-mail addresses and passwords in URLs.
`mark` finds what `on` replaces and alters nothing."""

Scrubbing: TypeAlias = Literal["on", "content", "mark", "off"]
"""What may be chosen: a mode, or that nothing is looked for."""
