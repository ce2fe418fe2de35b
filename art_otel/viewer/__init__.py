"""Viewer: a page that shows trajectories, tokens and runs, and the file that is shared.

`serving/application.py` lists the addresses. `rollout/` and `pages/` make the answers as plain JSON values from a
`snapshot/` of the data, and the page in `ui/` only draws them. docs/how-to/view.md tells users how to view data.
"""
