"""Address: where a server listens.

Invariant: `str(Address.parse(text))` names the same place as `text`, with the port.
"""

from typing import NamedTuple, Self

from art_otel.errors import UsageError

_MAX_PORT = 65535


class Address(NamedTuple):
    """A host and a port; port 0 lets the system choose one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `HOST:PORT`, as `127.0.0.1:4318` or `[::1]:4318`. Raises UsageError for anything else."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdecimal() or int(port) > _MAX_PORT:
            raise UsageError(f"{text!r} is no address: write HOST:PORT, as in 127.0.0.1:4318")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
