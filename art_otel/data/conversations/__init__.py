"""Conversations: histories as chat messages, for supervised fine-tuning and preferences."""
