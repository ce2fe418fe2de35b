"""Tracing: tinker-cookbook's environments as rollouts, with the tokens that were sampled.

Nothing of tinker-cookbook is imported, and where nothing records spans everything runs as it would without.
"""

from art_otel_tinker.tracing.builder import trace_builder
from art_otel_tinker.tracing.dataset import trace_dataset, trace_dataset_builder
from art_otel_tinker.tracing.env import trace_env
from art_otel_tinker.tracing.policy import trace_policy

__all__ = ["trace_builder", "trace_dataset", "trace_dataset_builder", "trace_env", "trace_policy"]
