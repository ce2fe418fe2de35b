"""Client: the trainer's side. It asks a receiver for finished rollouts, and loads nothing of a server."""
