"""Estimate: what a conversion would take, from the sizes of its inputs.

Invariant: the numbers of tasks are those of the engines; the rates are measurements, which
`tests/benchmarks/cluster_plan` makes anew. An estimate reads no input.
"""

from math import ceil
from typing import Final

import msgspec

from art_otel.engines.run import Sizes

_BASE_MEMORY: Final = 140_000_000
"""Bytes of a process that plans and knows of no input yet, with Ray and pyarrow."""

_FILE_MEMORY: Final = 2_000
"""Bytes a split: the account of its file, its task and its shuffle file's entry in a catalog, with a bit a slot."""

_PART_MEMORY: Final = 4_000
_LINKED_MEMORY: Final = 140
"""Bytes a linked trace, when where it goes is written down."""

_WORKER_MEMORY: Final = 400_000_000


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured.

    `core` and `link` are bytes a second, of a core and of a node's link, `requests` are a second and a node. `records`,
    `shuffled` and `written` are how many bytes a byte of input becomes in memory, in shuffle files and in the dataset.
    A read task writes its records after every `flushed` bytes, as one block a slot, or one block a rollout where fewer
    rollouts (of `rollout` bytes of input each) came.
    """

    core: float = 40e6
    link: float = 1.25e9
    requests: float = 5_000
    records: float = 0.8
    shuffled: float = 0.32
    written: float = 0.125
    flushed: float = 48 << 20
    rollout: float = 80_000


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a conversion. Sizes are in bytes, times in seconds; memory is the most at one time."""

    input_bytes: int
    read_tasks: int
    assemble_tasks: int
    shuffle_bytes: int
    output_bytes: int
    node_bytes: int
    requests: int
    driver_memory: int
    worker_memory: int
    core_seconds: float
    link_seconds: float
    request_seconds: float

    @property
    def seconds(self) -> float:
        """How long it takes: as long as what it waits for most."""
        return max(self.core_seconds, self.link_seconds, self.request_seconds)


def estimate(
    total: int,
    *,
    nodes: int = 1,
    workers: int = 1,
    sizes: Sizes | None = None,
    rates: Rates | None = None,
    linked_traces: int = 0,
) -> Estimate:
    """Estimate the conversion of so many bytes, of which so many traces are linked to others.

    The nodes together run so many tasks at once as there are `workers`. Every byte is read, shuffled out, shuffled in
    and written; a link carries each of them once.
    """
    sizes, rates = sizes or Sizes(), rates or Rates()
    reads = max(1, ceil(total / sizes.split_bytes(total)))
    records = total * rates.records
    parts = min(sizes.slots, max(1, ceil(records / sizes.part_bytes)))
    shuffled, written = total * rates.shuffled, total * rates.written
    moved = total + 2 * shuffled + 2 * written
    blocks = int(min(max(reads, records / rates.flushed) * sizes.slots, total / rates.rollout))
    requests = reads * 3 + blocks + reads * parts + parts * 3
    return Estimate(
        input_bytes=total,
        read_tasks=reads,
        assemble_tasks=parts,
        shuffle_bytes=int(shuffled),
        output_bytes=int(written),
        node_bytes=int(moved / nodes),
        requests=requests,
        driver_memory=_BASE_MEMORY + _FILE_MEMORY * reads + _PART_MEMORY * parts + _LINKED_MEMORY * linked_traces,
        worker_memory=_WORKER_MEMORY,
        core_seconds=total / rates.core / workers,
        link_seconds=moved / nodes / rates.link,
        request_seconds=requests / nodes / rates.requests,
    )
