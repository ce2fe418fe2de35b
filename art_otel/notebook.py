"""Notebook: what Jupyter shows of trajectories and batches: a line, and the viewer's page in a frame.

Invariant: the page is a document of its own in a frame, so no text of a trajectory can touch the notebook. The viewer
is loaded by its name when a notebook asks, because what is shown here stands below it.
"""

from collections.abc import Sequence
from html import escape
from importlib import import_module
from typing import Final

from art_otel.errors import ArtOtelError

MOST_SHOWN: Final = 50
"""Trajectories in a page; a notebook keeps it whole in its file."""


def page_html(line: str, trajectories: Sequence[object], *, plan: bool = False) -> str:
    """The line, and a page of these trajectories, or of what would train of them.

    Without the page where they cannot be written, as with a value that no column can hold.
    """
    heading = f"<p>{escape(line)}</p>"
    if not trajectories:
        return heading
    try:
        return heading + import_module("art_otel.viewer.sharing").frame_html(trajectories[:MOST_SHOWN], plan=plan)
    except (ArtOtelError, OSError) as error:
        return f"{heading}<p>{escape(str(error))}</p>"
