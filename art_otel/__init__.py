"""OpenTelemetry in, training data out."""
