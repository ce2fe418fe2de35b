"""`art-otel convert --plan`: what a conversion would take, from the sizes of its inputs."""

import argparse
import json
import sys

import msgspec

from art_otel.errors import UsageError


def print_plan(arguments: argparse.Namespace) -> int:
    """Print the estimate, as a table or as JSON. Raises UsageError for an input of unknown size, or no node."""
    from art_otel.conversion import since_ns  # noqa: PLC0415 # as below
    from art_otel.engines.estimate import estimate  # noqa: PLC0415 # loads only for who asks
    from art_otel.engines.ledger import changed_since, without_dataset  # noqa: PLC0415 # as above
    from art_otel.engines.local import available_processors  # noqa: PLC0415 # as above
    from art_otel.sources import find_inputs  # noqa: PLC0415 # as above

    if arguments.nodes < 1:
        raise UsageError(f"--nodes {arguments.nodes}: needs at least one node")
    inputs = without_dataset(find_inputs(arguments.sources), str(arguments.out))
    total = 0
    for source in changed_since(since_ns(arguments.since), inputs):
        if source.size is None:
            raise UsageError(f"--plan: nobody knows how long {source.name} is; name files")
        total += source.size
    workers = arguments.workers or available_processors() * arguments.nodes
    plan = estimate(total, nodes=arguments.nodes, workers=workers)
    numbers = msgspec.structs.asdict(plan) | {"files": len(inputs), "seconds": plan.seconds}
    if arguments.json:
        sys.stdout.write(json.dumps(numbers) + "\n")
        return 0
    per_node = f", {_bytes(plan.node_bytes)} over the network of each of {arguments.nodes} nodes"
    rows = {
        "in": f"{_bytes(total)} in {_count(len(inputs), 'file')}",
        "tasks": f"{plan.read_tasks:,} to read, {plan.assemble_tasks:,} to assemble; {workers} at once",
        "scratch": f"{_bytes(plan.shuffle_bytes)} of shuffle files",
        "out": f"about {_bytes(plan.output_bytes)}",
        "memory": f"{_bytes(plan.driver_memory)} here, up to {_bytes(plan.worker_memory)} a worker",
        "moves": f"{plan.requests:,} requests to a store{per_node if arguments.nodes > 1 else ''}",
        "takes": f"about {_duration(plan.seconds)}: {_duration(plan.core_seconds)} of work,"
        f" {_duration(plan.link_seconds)} of network, {_duration(plan.request_seconds)} of requests, at the same time",
    }
    sys.stdout.writelines(f"{label:>7}  {text}\n" for label, text in rows.items())
    return 0


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _bytes(number: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if number < 1_000:
            return f"{number:.3g} {unit}"
        number /= 1_000
    return f"{number:.3g} TB"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 100 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"
