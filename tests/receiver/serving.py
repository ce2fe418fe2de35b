"""Serving: `art-otel serve` as a process of its own, which tests send to, kill and start again."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from art_otel.trajectories import Trajectory
from tests.conversions import convert_files

_PORTS = re.compile(r"OTLP/(HTTP|gRPC) at (?:http://)?(\S+)")


class Serve:
    """`art-otel serve`, begun by `start`; a later `start` listens where the first one did."""

    def __init__(self, folder: Path, *options: str, grpc: bool = False, prefix: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.log = folder.parent / f"{folder.name}.log"
        self._options = options
        self._prefix = prefix
        self.http = "127.0.0.1:0"
        self.grpc = "127.0.0.1:0" if grpc else None
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{self.http}"

    @property
    def received(self) -> Path:
        return self.folder / "spool" / "received"

    def start(self) -> "Serve":
        grpc = ("--no-grpc",) if self.grpc is None else ("--grpc", self.grpc)
        command = [*self._prefix, sys.executable, "-m", "art_otel", "serve", "--dir", str(self.folder)]
        begins = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            environment = {**os.environ, "ART_OTEL_DIR": str(self.folder)}
            self.process = subprocess.Popen(
                [*command, "--listen", self.http, *grpc, *self._options], stdout=log, stderr=log, env=environment
            )
        deadline = time.monotonic() + 60
        while "press Ctrl+C to stop" not in (text := self.log.read_bytes()[begins:].decode()):
            assert self.process.poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.01)
        addresses = dict(_PORTS.findall(text))
        self.http, self.grpc = addresses["HTTP"], addresses.get("gRPC")
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(30) == 0, self.log.read_text()

    def metrics(self, headers: Mapping[str, str] | None = None) -> dict[str, int]:
        lines = httpx.get(f"{self.url}/metrics", headers=headers).text.splitlines()
        return {name: int(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}

    def wait_until_all_ended(self) -> None:
        """Wait until nothing is open any more, and all that came was looked at."""
        deadline = time.monotonic() + 60
        while (now := self.metrics())["art_otel_open_rollouts"] or now["art_otel_lag_bytes"]:
            assert time.monotonic() < deadline, now
            time.sleep(0.05)

    def convert(self, out: Path) -> list[Trajectory]:
        """What was received, as the dump that it is."""
        return convert_files(out, self.received)[0]


@contextmanager
def serving(folder: Path, *options: str, grpc: bool = False, prefix: tuple[str, ...] = ()) -> Iterator[Serve]:
    """A running server; what it says besides its addresses has to be expected by the test that makes it."""
    server = Serve(folder, *options, grpc=grpc, prefix=prefix).start()
    try:
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            try:
                server.stop()
            finally:
                server.kill()
        said = server.log.read_text()
        print(said)  # pytest shows it with what failed
    assert "Traceback" not in said, said
