"""Workflows: step-wise classes as Trinity names them, and what their steps give."""
