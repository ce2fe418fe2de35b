"""Processing: what becomes of rollouts' spans while the app runs: the span processor, and spans as lines."""
