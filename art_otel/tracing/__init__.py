"""Tracing: rollouts of a live app become spans, and spans become a spool and trajectories.

The only package that a traced app runs. What the app itself uses needs OTel's API only; what records needs its SDK.
"""
