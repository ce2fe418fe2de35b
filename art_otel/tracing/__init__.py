"""Tracing: rollouts of a live app become spans, and spans become a spool and trajectories.

The only room that a traced app runs. Modules that the app itself uses need OTel's API only; what records needs its SDK.
"""
