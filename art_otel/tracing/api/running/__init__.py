"""Running: the handle of a rollout in progress, its fields and its histories."""
