"""Viewer: a page that shows trajectories, tokens and runs, and the file that is shared.

`viewer.application` lists its addresses; each view model is a module of its noun and is made of plain JSON values. The
page in `ui/` only draws them. docs/how-to/view.md is its page.
"""
