"""Sequences: token histories with masks, logprobs and advantages."""
