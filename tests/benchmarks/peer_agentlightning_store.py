"""Runs in Agent Lightning's environment: its store in memory, behind the server that takes OTLP.

Prints a JSON line: where it listens, and the ids of so many rollouts that it knows. It ends when a line comes. Only the
standard library and Agent Lightning are imported.
"""

import asyncio
import json
import logging
import os
import socket
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else importing it asks the network

from agentlightning.store import InMemoryLightningStore, LightningStoreServer


async def serve(rollouts: int) -> None:
    """Begin the rollouts, listen, wait."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = InMemoryLightningStore()
    begun = [await store.start_rollout(input="x") for _ in range(rollouts)]
    ids = [(rollout.rollout_id, rollout.attempt.attempt_id) for rollout in begun]
    server = LightningStoreServer(store, host="127.0.0.1", port=port)
    await server.start()
    print(json.dumps({"url": server.otlp_traces_endpoint(), "ids": ids}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await server.stop()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(serve(int(sys.argv[1])))
