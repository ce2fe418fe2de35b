"""Calls: the LLM calls of a rollout, with what the spans and log records around them say."""
