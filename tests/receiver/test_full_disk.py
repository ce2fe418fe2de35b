"""A disk that is really full: exports are refused by status, and nothing that was acknowledged is lost."""

import asyncio
import os
import shutil
import subprocess
import time
from pathlib import Path

import grpc
import pytest

import art_otel
from tests.conversions import convert_files
from tests.receiver.consuming import consume, take, take_all
from tests.receiver.otlp import PROTOBUF, as_body, export, post, send
from tests.receiver.rollouts import rollout
from tests.receiver.serving import serving

pytestmark = pytest.mark.long

SMALL_DISK = (
    *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c"),
    'mount -t tmpfs -o size=2m none "$ART_OTEL_DIR" && exec "$@"',
    "sh",
)


def large(number: int) -> bytes:
    return as_body(rollout(number, **{"art.metadata.filling": "x " * 50_000}), PROTOBUF)


@pytest.mark.parametrize("options", [(), ("--fsync",)])
def test_a_full_disk(tmp_path, options):
    folder = tmp_path / "disk"
    folder.mkdir()
    probe = [*SMALL_DISK, "true"]
    if (
        shutil.which("unshare") is None
        or subprocess.run(
            probe, env={**os.environ, "ART_OTEL_DIR": str(folder)}, check=False, capture_output=True
        ).returncode
    ):
        pytest.skip("no mount namespaces here")
    with serving(folder, *options, grpc=True, prefix=SMALL_DISK) as server:
        assert server.process is not None
        disk = Path(f"/proc/{server.process.pid}/root{folder}")
        acknowledged = {f"r{number}" for number in range(1, 4) if post(server.url, large(number)).status_code == 200}
        assert len(acknowledged) == 3

        async def run() -> list:
            async with art_otel.connect(server.url) as rollouts:
                taken = await take(rollouts, 2)
                _fill(disk / "filler")
                waiting = asyncio.create_task(take(rollouts, 1))
                refused = [await asyncio.to_thread(post, server.url, large(number)) for number in range(4, 8)]
                assert {answer.status_code for answer in refused} == {503}
                assert {answer.headers["retry-after"] for answer in refused} == {"1"}
                with grpc.insecure_channel(server.grpc) as channel:
                    with pytest.raises(grpc.RpcError) as error:
                        await asyncio.to_thread(export, channel, large(8))
                    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
                (disk / "filler").unlink()
                taken += await waiting
                for number in range(9, 12):
                    while (await asyncio.to_thread(post, server.url, large(number))).status_code == 503:
                        await asyncio.sleep(0.1)
                    acknowledged.add(f"r{number}")
                return taken + await take_all(rollouts, 3)

        taken = asyncio.run(run())
        assert "exports are refused, and their senders will send them again" in server.log.read_text()
        assert "lost" not in server.log.read_text()
        assert sorted(one.rollout_id for one in taken) == sorted(acknowledged)
        assert all(one.complete for one in taken)
        found, _ = convert_files(tmp_path / "out", disk / "spool" / "received")
        assert {one.rollout_id for one in found} == acknowledged


def _fill(filler: Path) -> None:
    """Write until nothing more can be written."""
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue


def test_old_runs_are_removed_and_nothing_else(tmp_path):
    """What was handed out goes when it is old; what still waits, and what others put there, stays."""
    folder = tmp_path / "art"
    for number in (1, 2):
        with serving(folder) as server:
            send(server.url, rollout(number))
            if number == 1:
                assert [one.rollout_id for one in consume(server.url, 1)] == ["r1"]
            first = sorted(server.received.glob("*/*.otlp.jsonl"))
        time.sleep(1.1)
    old, new = first
    for file in first:
        os.utime(file, (time.time() - 7200,) * 2)
    (old.parent.parent / "notes").mkdir()
    (old.parent.parent / "notes" / "mine.txt").write_text("not yours")
    os.utime(old.parent.parent / "notes" / "mine.txt", (0, 0))
    with serving(folder, "--retain", "1s") as server:
        while old.exists():
            time.sleep(0.1)
        assert new.exists()
        assert (server.received / "notes" / "mine.txt").exists()
        assert [one.rollout_id for one in consume(server.url, 1)] == ["r2"]
