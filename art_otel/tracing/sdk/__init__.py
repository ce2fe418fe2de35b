"""Processing: the SDK's half of live tracing. It finds the rollout of each span and writes the span to the spool."""
