"""Rollout shows one rollout: its row, conversation, tokens, turns and timeline, and why each completion trains."""
