"""Assemble: phase two. One bucket becomes a run of trajectories, independent of all other buckets.

Invariant: takes and returns plain values, so that any engine can run it in any process.
"""

from collections.abc import Iterator

from art_otel.engines.buckets import Bucket
from art_otel.engines.groups import groups_of
from art_otel.store import write_run
from art_otel.trajectories import AssemblyStats, Trajectory, build_trajectories


def assemble_bucket(bucket: Bucket) -> AssemblyStats:
    """Assemble a bucket into its run."""
    account = AssemblyStats()
    write_run(_trajectories(bucket, account), bucket.run, runs=bucket.runs)
    return account


def _trajectories(bucket: Bucket, account: AssemblyStats) -> Iterator[Trajectory]:
    for group in groups_of(bucket, account):
        yield from build_trajectories(group, bucket.rollout_spans, account).trajectories
