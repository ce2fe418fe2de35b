"""Receiver: an OTLP endpoint that hands finished rollouts to a trainer.

`receiver.receiver` tells the story. docs/how-to/receive.md is its page.
"""
