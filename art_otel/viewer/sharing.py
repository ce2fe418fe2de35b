"""Sharing: the page and its answers as one HTML file, or as a frame in a notebook.

Invariant: the file holds the page, and the answers about what was selected alone; of the others it says how many there
are. Advantages are those of whole groups, as on the server. It asks no network. The answers are compressed, and stand
in base64, so that no text of theirs can end the script that holds them. A frame has an origin of its own, so a script
in it cannot reach what is around it.
"""

import gzip
from base64 import b64encode
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlencode

import numpy as np

from art_otel.errors import UsageError
from art_otel.store import write_trajectories
from art_otel.trajectories import Trajectory
from art_otel.viewer.addresses import decode_group_key
from art_otel.viewer.group import show_group
from art_otel.viewer.judging import DEFAULTS
from art_otel.viewer.listing import MOST_ROWS, PLACE, list_rows, read_address
from art_otel.viewer.rollout import show_rollout, show_rows
from art_otel.viewer.run import read_first, show_plan, show_run
from art_otel.viewer.serving import Api, static_file, to_json
from art_otel.viewer.snapshot import Snapshot, ViewedData
from art_otel.viewer.texts import show_texts
from art_otel.viewer.tokens import TURNS, show_tokens

DATA_ID: Final = "art-otel-data"

_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:;"
    " require-trusted-types-for 'script'; base-uri 'none'; form-action 'none'"
)
"""A browser asks nobody for anything: what the file needs is in it."""

_HEIGHT: Final = 640
"""Pixels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewSelection:
    """Rollouts and groups by their ids (none: everything), of what a list's address shows, and at most how many."""

    rollouts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    where: str = ""
    limit: int | None = None

    def __str__(self) -> str:
        """The options that select it; empty where it is everything."""
        query = {name: value for name, value in read_address(self.where).items() if name not in PLACE}
        options = [
            *(("--rollout", rollout_id) for rollout_id in self.rollouts),
            *(("--group", group_id) for group_id in self.groups),
            *([("--where", urlencode(query))] if query else []),
        ]
        return " ".join(f"{name} {quote(value)}" for name, value in options)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    """The page as one document, and how many rollouts are in it, of how many that the selection matches."""

    document: str
    rollouts: int
    matching: int


def render_html(api: Api, selection: ViewSelection) -> Rendered:
    """Make the document of a selection. Raises UsageError for ids that are not in the data, and for no rollout."""
    snapshot = api.data.snapshot
    matching = _selected(snapshot, selection)
    if not matching and str(selection):
        raise UsageError(f"{selection}: chooses no rollout")
    rows = matching[: selection.limit]
    snapshot.hold(rows)
    chosen = {"total": len(snapshot.outlines), "matching": len(matching), "rollouts": len(rows), "by": str(selection)}
    data = {"generation": snapshot.generation, "responses": _responses(api, snapshot, rows, chosen)}
    return Rendered(document=_document(to_json(data)), rollouts=len(rows), matching=len(matching))


def frame_html(trajectories: Sequence[Trajectory], *, plan: bool) -> str:
    """A frame that shows these trajectories, or what would train. Raises UsageError, StoreError and OSError."""
    with TemporaryDirectory(prefix="art-otel-") as folder:
        write_trajectories(list(trajectories), folder)
        data = ViewedData([folder], judge_at_once=False)
        api = Api(data=data, tokenizer=None, spans=None, live=False)
        try:
            document = render_html(api, ViewSelection()).document
            view = "#/" if plan else _view(api)
        finally:
            api.data.close()
    # A data: address and no srcdoc, in which links to a hash would lead to the notebook.
    address = f"data:text/html;charset=utf-8;base64,{b64encode(document.encode()).decode()}{view}"
    return (
        f'<iframe src="{address}" sandbox="allow-scripts" title="art-otel view"'
        f' style="width:100%;height:{_HEIGHT}px;border:1px solid #8884"></iframe>'
    )


def _selected(snapshot: Snapshot, selection: ViewSelection) -> list[int]:
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


def _responses(api: Api, snapshot: Snapshot, rows: list[int], chosen: dict[str, Any]) -> dict[str, Any]:
    """The answers by the paths that the page asks for; `chosen` says how many rollouts they are of."""
    alone = snapshot.narrowed(rows)
    alone.judging.wait()  # so that the rows have their verdicts
    places = np.searchsorted(np.sort(rows), rows).tolist()
    shown = [row | texts for row, texts in zip(show_rows(alone, places), show_texts(alone, places), strict=True)]
    by_key, neighbors = {row["key"]: row for row in shown}, _neighbors(shown)
    responses: dict[str, Any] = {}

    def add(path: str, answer: dict[str, Any]) -> dict[str, Any]:
        responses[f"/api/{path}"] = {"generation": snapshot.generation, **answer}
        return answer

    add("info", api.answer("info", {}) | {"chosen": chosen})
    # The reports are of all rollouts: of a conversion, of groups that may be here in part, and of a verification.
    is_all = alone is snapshot
    add("run", show_run(alone, {}) | ({} if is_all else {"account": None}))
    add("run/read", read_first(alone, {}))
    add("plan", show_plan(alone, DEFAULTS) | ({} if is_all else {"report": None}))
    add("verify", api.answer("verify", {}) if is_all else {"sources": []})
    for offset in range(0, max(len(shown), 1), MOST_ROWS):
        page = {"total": len(shown), "offset": offset, "rows": shown[offset : offset + MOST_ROWS]}
        add(f"trajectories?offset={offset}&limit={MOST_ROWS}", page)
    # One group after the other: its members are compared with the same.
    by_group = sorted(zip(rows, shown, strict=True), key=lambda one: one[1]["groupKey"] or "")
    for group_key, members in groupby(by_group, key=lambda one: one[1]["groupKey"]):
        for at, row in members:
            path = f"rollouts/{row['key']}"
            told = show_rollout(snapshot, at, DEFAULTS, api.tokenizer, api.spans)
            add(path, {"row": row, **told, **neighbors[row["key"]]})
            for first in range(0, max(row["turns"], 1), TURNS):
                add(f"{path}/tokens?first={first}", show_tokens(snapshot, at, first, DEFAULTS, api.tokenizer))
        if group_key is not None:
            group = show_group(snapshot, decode_group_key(group_key), DEFAULTS)
            those_here = [by_key.get(member["key"]) for member in group["members"]]
            if None not in those_here:  # a part of a group would tell of the others
                add(f"groups/{group_key}", group | {"members": those_here})
    return responses


def _neighbors(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, str | None]]:
    """Who comes before and after each of these rows, among them all and in its group, by its key."""
    groups: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row["groupKey"] is not None:
            groups[row["groupKey"]].append(row["key"])
    neighbors: dict[str, dict[str, str | None]] = {
        row["key"]: dict.fromkeys(("previous", "next", "groupPrevious", "groupNext")) for row in rows
    }
    for one, after in pairwise(row["key"] for row in rows):
        neighbors[one]["next"], neighbors[after]["previous"] = after, one
    for one, after in chain.from_iterable(map(pairwise, groups.values())):
        neighbors[one]["groupNext"], neighbors[after]["groupPrevious"] = after, one
    return neighbors


def _document(data: bytes) -> str:
    """The page with its script, its styles and the data inside."""
    html, script, style = (static_file(name).decode() for name in ("index.html", "app.js", "app.css"))
    script_tag, style_tag = _tag(html, "<script", "</script>"), _tag(html, "<link", ">")
    compressed, escaped = b64encode(gzip.compress(data, 6, mtime=0)).decode(), script.replace("</script", r"<\/script")
    parts = (f'<script type="text/plain" id="{DATA_ID}">{compressed}</script>', f"<script>{escaped}</script>")
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
