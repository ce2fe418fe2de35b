"""Viewer: the page served to this machine's browser.

Invariant: it listens on loopback alone, and nothing it serves changes anything.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from art_otel.errors import UsageError
from art_otel.http import Address, HttpServer
from art_otel.viewer.serving.api import Api
from art_otel.viewer.serving.application import Application


class Viewer:
    """A server that runs in a thread of its own."""

    def __init__(self, api: Api, address: Address) -> None:
        if not address.is_loopback:
            raise UsageError(f"{address}: the viewer shows data to this machine alone; reach it through SSH")
        self._api = api
        self._application = Application(api, self._listening)
        self._server = HttpServer(self._application.asgi, address)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="art-otel viewer", daemon=True)

    @property
    def url(self) -> str:
        """The address to open, with its token."""
        return f"{self._server.url}/?token={self._application.token}"

    def one_time_url(self) -> str:
        """Give an address that opens the page once, within a minute: others may read the arguments of a browser."""
        return f"{self._server.url}/?code={self._application.code()}"

    def start(self) -> None:
        """Listen. Raises UsageError where the port is taken."""
        self._thread.start()
        try:
            self._run(self._server.start())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Answer the requests that have come, and stop."""
        self._application.stopping = True
        self._run(self._server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._api.data.close()

    def _listening(self) -> Address:
        return Address.parse(self._server.url.partition("://")[2])

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
