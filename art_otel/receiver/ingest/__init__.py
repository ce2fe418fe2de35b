"""Ingest: exports come in over OTLP, lose their secrets, and stand in the spool when they are answered."""
