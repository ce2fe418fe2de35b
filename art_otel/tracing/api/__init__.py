"""Rollouts: what an app says of them, by decorators, blocks and calls: where one begins and ends, what it is worth.

Invariant: nothing here needs OTel's SDK. Where tracing is off the app's code runs as it would without us.
"""
