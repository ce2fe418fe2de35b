"""OTLP, in JSON and in protobuf: its data model once, its two encodings, and what is salvaged of a torn request."""
