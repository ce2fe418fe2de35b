"""Frame: the exported page of a few trajectories as an HTML frame, for a notebook.

Invariant: the frame has an origin of its own and asks no network; a script in it cannot reach what is around it.
"""

from base64 import b64encode
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Final

from art_otel.store import write_trajectories
from art_otel.trajectories import Trajectory
from art_otel.viewer.rollout.row import show_rows
from art_otel.viewer.serving.api import Api
from art_otel.viewer.sharing.export import Selection, render_html
from art_otel.viewer.snapshot import ViewedData

_HEIGHT: Final = 640
"""Pixels."""


def frame_html(trajectories: Sequence[Trajectory], *, plan: bool) -> str:
    """A frame that shows these trajectories, or what would train. Raises UsageError, StoreError and OSError."""
    with TemporaryDirectory(prefix="art-otel-") as folder:
        write_trajectories(list(trajectories), folder)
        api = Api(data=ViewedData([folder]), tokenizer=None, spans=None, live=False)
        try:
            document = render_html(api, Selection()).document
            view = "#/plan" if plan else _view(api)
        finally:
            api.data.close()
    # A data: address and no srcdoc, in which links to a hash would lead to the notebook.
    address = f"data:text/html;charset=utf-8;base64,{b64encode(document.encode()).decode()}{view}"
    return (
        f'<iframe src="{address}" sandbox="allow-scripts" title="art-otel view"'
        f' style="width:100%;height:{_HEIGHT}px;border:1px solid #8884"></iframe>'
    )


def _view(api: Api) -> str:
    """The address of the rollout's page where there is one rollout, else of the list."""
    rows = show_rows(api.data.snapshot, range(len(api.data.snapshot.outlines)))
    return f"#/r/{rows[0]['key']}" if len(rows) == 1 else "#/t"
