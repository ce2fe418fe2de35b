"""Tracing: tinker-cookbook's environments as rollouts, with the tokens that were sampled.

Nothing of tinker-cookbook is imported, and where nothing records spans everything runs as it would without.
"""

from art_otel_tinker.tracing.environments import trace_builder, trace_dataset, trace_dataset_builder, trace_env
from art_otel_tinker.tracing.wrapping import trace_policy

__all__ = ["trace_builder", "trace_dataset", "trace_dataset_builder", "trace_env", "trace_policy"]
