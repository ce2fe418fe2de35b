"""An agent of each other client, in each way of asking: `python other_clients.py CLIENT WAY URL`.

Invariant: all ways of a client ask the same; only the method that asks, and what the answer is read from, differs.
"""

import asyncio
import importlib
import sys


def main(client: str, way: str, url: str) -> None:
    """Ask until the agent has its answer; async ways share one event loop."""
    agent = importlib.import_module(f"tests.tracing.apps.clients.{client}_agent").Agent(url)
    ask = getattr(agent, way)
    if not asyncio.iscoroutinefunction(ask):
        while agent.goes_on(ask()):
            pass
        return
    with asyncio.Runner() as runner:
        while agent.goes_on(runner.run(ask())):
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
