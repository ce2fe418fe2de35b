"""Backends: the formats in which stores and libraries give their spans where it is not OTLP, and what they share."""
