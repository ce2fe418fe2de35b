"""Group commit: many callers on one event loop wait for the disk, and one flush serves all of them.

Invariant: who waits is told of a flush that began after it asked. So while one flush runs, all who come share the next.
The loop itself never waits.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class GroupCommit:
    """Runs `sync`, which says whether the disk has everything, in a thread of its own."""

    def __init__(self, sync: Callable[[], bool]) -> None:
        self._sync = sync
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="art-otel fsync")
        self._running: asyncio.Task[bool] | None = None
        self._next: asyncio.Task[bool] | None = None

    async def wait(self) -> bool:
        """Wait until the disk has what was written before; False where it refuses."""
        if self._next is None:
            self._next = asyncio.create_task(self._flush(self._running))
        return await asyncio.shield(self._next)  # whoever leaves takes it from nobody else

    async def _flush(self, before: "asyncio.Task[bool] | None") -> bool:
        if before is not None:
            await asyncio.wait((before,))
        self._running, self._next = self._next, None
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._sync)

    def close(self) -> None:
        """End when what runs is done."""
        self._thread.shutdown()
