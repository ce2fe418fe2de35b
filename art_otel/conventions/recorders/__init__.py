"""Recorders: what instrumentors and frameworks lose, rewrite or write in shapes of their own."""
