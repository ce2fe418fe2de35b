"""Caches: what was parsed last, because every call repeats the history of its conversation."""
