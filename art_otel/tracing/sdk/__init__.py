"""Processing: what becomes of rollouts' spans while the app runs: the span processor, the spool, the live assembler."""
