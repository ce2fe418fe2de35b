"""Problems: what a page is told instead of an answer."""

from art_otel.errors import ArtOtelError


class NotFoundError(ArtOtelError):
    """Nothing has this address: 404."""


class ReplacedError(ArtOtelError):
    """The data is another than the page has seen: 409."""
