"""Viewer: a page that shows trajectories, tokens and runs, and the file that is shared.

`serving.py` lists the addresses. `snapshot.py` is the data that is looked at, and `judging.py` what would train of it;
`rollout.py` and its parts make one rollout's answers as plain JSON values, `run.py` with `tasks.py`, `listing.py` and
`group.py` those of many, and the page in `ui/` only draws them. docs/how-to/view.md tells users how to view data.
"""
