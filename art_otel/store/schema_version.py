"""The version of the schema, and the keys under which files carry it. Loads nothing.

Invariant: the version goes up with every change to what a reader must know.
"""

from typing import Final

SCHEMA_VERSION: Final = 1
VERSION_KEY: Final = b"art_otel.schema"
FIRST_EDITION_KEY: Final = b"art_otel.schema_version"
"""The key that files of the first edition have instead of VERSION_KEY. Nothing reads them."""
