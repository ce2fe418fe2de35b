"""A balancer: each connection goes to the next server in turn, past those that do not answer."""

import itertools
import socket
import socketserver
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from tests.stand_ins import listening


@contextmanager
def balanced(urls: Sequence[str], delay: float = 0.0) -> Iterator[str]:
    """The address of a round-robin balancer. What is sent arrives `delay` seconds later."""
    targets = [url.removeprefix("http://").split(":") for url in urls]
    turns = itertools.count()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            turn = next(turns)
            for at in range(len(targets)):
                host, port = targets[(turn + at) % len(targets)]
                with suppress(OSError), socket.create_connection((host, int(port))) as target:
                    answering = threading.Thread(target=_pass_on, args=(target, self.request, 0.0))
                    answering.start()
                    _pass_on(self.request, target, delay)
                    answering.join()
                    return

    with listening(Handler, socketserver.ThreadingTCPServer) as url:
        yield url


def _pass_on(source: socket.socket, target: socket.socket, delay: float) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            time.sleep(delay)
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
