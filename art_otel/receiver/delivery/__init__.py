"""Delivery: finished rollouts are handed out to consumers until they acknowledge them."""
