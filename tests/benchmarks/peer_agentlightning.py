"""Runs in Agent Lightning's environment: OTLP bytes to its spans, and spans to its triplets; print JSON.

CPU seconds of both, and what it saw. Only the standard library and Agent Lightning are imported.
"""

import asyncio
import json
import logging
import os
import sys
import time
from pathlib import Path

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else importing it asks the network

from agentlightning.adapter import TracerTraceToTriplet
from agentlightning.utils.otlp import spans_from_proto
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


async def number(asked: list) -> list[int]:
    """The numbers that its store would give to spans."""
    return list(range(len(asked)))


def main(path: str) -> None:
    """Read a dump of one rollout a request."""
    logging.disable(logging.CRITICAL)
    adapter = TracerTraceToTriplet()
    seen = {"spans": 0, "calls": 0, "prompt_ids": 0, "sampled_ids": 0, "rewards": 0}
    reading = adapting = 0.0
    with Path(path).open("rb") as file:
        while size := file.read(4):
            begin = time.process_time()
            request = ExportTraceServiceRequest.FromString(file.read(int.from_bytes(size, "big")))
            spans = asyncio.run(spans_from_proto(request, number))
            read = time.process_time()
            triplets = adapter.adapt(spans)
            adapting += time.process_time() - read
            reading += read - begin
            seen["spans"] += len(spans)
            seen["calls"] += len(triplets)
            seen["rewards"] += sum(triplet.reward is not None for triplet in triplets)
            for name, side in (("prompt_ids", "prompt"), ("sampled_ids", "response")):
                seen[name] += sum(len(getattr(triplet, side)["token_ids"]) for triplet in triplets)
    print("\n" + json.dumps({**seen, "reading": reading, "adapting": adapting}))


if __name__ == "__main__":
    main(sys.argv[1])
