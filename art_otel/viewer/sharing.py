"""Sharing: the page and its answers as one HTML file, or as a frame in a notebook.

Invariant: the file holds the page, and the answers about what was selected alone; it asks no network. Text of the data
cannot end the script that holds it, because `<` is written as an escape. A frame has an origin of its own, so a script
in it cannot reach what is around it.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlencode

import numpy as np

from art_otel.errors import UsageError
from art_otel.store import write_trajectories
from art_otel.trajectories import Trajectory
from art_otel.viewer.listing import MOST_ROWS, list_rows, read_address
from art_otel.viewer.rollout import show_rows
from art_otel.viewer.serving import Api, static_file, to_json
from art_otel.viewer.snapshot import Snapshot, ViewedData

DATA_ID: Final = "art-otel-data"

_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:;"
    " require-trusted-types-for 'script'; base-uri 'none'; form-action 'none'"
)
"""A browser asks nobody for anything: what the file needs is in it."""

_HEIGHT: Final = 640
"""Pixels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Rollouts and groups by their ids (none: everything), of what a list's address shows, and at most how many."""

    rollouts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    where: str = ""
    limit: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    """The page as one document, and how many rollouts are in it, of how many that the selection matches."""

    document: str
    rollouts: int
    matching: int


def render_html(api: Api, selection: Selection) -> Rendered:
    """Make the document of a selection. Raises UsageError for ids that are not in the data."""
    snapshot = api.data.snapshot
    snapshot.judging.wait()  # so that the rows have their verdicts
    matching = _selected(snapshot, selection)
    rows = matching[: selection.limit]
    snapshot.hold(rows)
    data = {"generation": snapshot.generation, "responses": _responses(api, snapshot, rows)}
    return Rendered(document=_document(to_json(data).decode()), rollouts=len(rows), matching=len(matching))


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


def _selected(snapshot: Snapshot, selection: Selection) -> list[int]:
    outlines = snapshot.outlines
    listed = list_rows(snapshot, read_address(selection.where))
    if not selection.rollouts and not selection.groups:
        return listed.tolist()
    matches = np.zeros(len(outlines), np.bool_)
    for name, ids in (("rollout_id", selection.rollouts), ("group_id", selection.groups)):
        for each in ids:
            matching = outlines.equal(name, each)
            if not matching.any():
                raise UsageError(f"--{name.removesuffix('_id')} {each}: is not in this data")
            matches |= matching
    return listed[matches[listed]].tolist()


def _responses(api: Api, snapshot: Snapshot, rows: list[int]) -> dict[str, Any]:
    """The answers by the paths that the page asks for."""
    shown = show_rows(snapshot, rows)
    responses: dict[str, Any] = {}

    def add(path: str, query: dict[str, str] | None = None) -> dict[str, Any]:
        answer = api.answer(path, query or {})
        responses[f"/api/{path}" + (f"?{urlencode(query)}" if query else "")] = answer
        return answer

    add("info")
    if len(rows) == len(snapshot.outlines):  # these are about all rollouts
        for path in ("overview", "plan", "runs"):
            add(path)
    for offset in range(0, max(len(shown), 1), MOST_ROWS):
        page = {"total": len(shown), "offset": offset, "rows": shown[offset : offset + MOST_ROWS]}
        responses[f"/api/trajectories?offset={offset}&limit={MOST_ROWS}"] = {"generation": snapshot.generation, **page}
    keys = {row["key"] for row in shown}
    for row in shown:
        answer = add(f"rollouts/{row['key']}")
        for name in ("previous", "next", "groupPrevious", "groupNext"):
            answer[name] = answer[name] if answer[name] in keys else None
        add(f"rollouts/{row['key']}/raw")
        tokens = add(f"rollouts/{row['key']}/tokens", {"history": "0"})
        for number in range(1, len(tokens["histories"])):
            add(f"rollouts/{row['key']}/tokens", {"history": str(number)})
    for group_key in {row["groupKey"]: None for row in shown if row["groupKey"] is not None}:
        group = api.answer(f"groups/{group_key}", {})
        if {member["key"] for member in group["members"]} <= keys:  # a part of a group would tell of the others
            responses[f"/api/groups/{group_key}"] = group
    return responses


def _document(data: str) -> str:
    """The page with its script, its styles and the data inside."""
    html, script, style = (static_file(name).decode() for name in ("index.html", "app.js", "app.css"))
    script_tag, style_tag = _tag(html, "<script", "</script>"), _tag(html, "<link", ">")
    escaped_data, escaped_script = data.replace("<", r"\u003c"), script.replace("</script", r"<\/script")
    parts = (
        f'<script type="application/json" id="{DATA_ID}">{escaped_data}</script>',
        f"<script>{escaped_script}</script>",
    )
    html = html.replace("<head>", f'<head><meta http-equiv="content-security-policy" content="{_POLICY}">', 1)
    inlined = html.replace(style_tag, f"<style>{style}</style>").replace(script_tag, "")
    body, end, rest = inlined.rpartition("</body>")
    return f"{body}{''.join(parts)}{end}{rest}" if end else f"{inlined}{''.join(parts)}"


def _tag(html: str, opening: str, closing: str) -> str:
    start = html.index(opening)
    return html[start : html.index(closing, start) + len(closing)]


def _view(api: Api) -> str:
    """The address of the rollout's page where there is one rollout, else of the list."""
    rows = show_rows(api.data.snapshot, range(len(api.data.snapshot.outlines)))
    return f"#/r/{rows[0]['key']}" if len(rows) == 1 else "#/t"
