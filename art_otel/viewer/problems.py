"""Problems: what a page is told instead of an answer."""

from art_otel.errors import ArtOtelError


class NotFoundError(ArtOtelError):
    """Raised where nothing has this address: 404."""


class ReplacedError(ArtOtelError):
    """Raised where the data was replaced since the page saw it: 409."""
