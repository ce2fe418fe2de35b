"""Pages show many rollouts: the overview, the list, what would train, a group, a task over steps, training runs."""
