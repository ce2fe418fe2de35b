"""Phases: the tasks of one kind are planned and run, and what they say is put together."""
