"""What networks and people do to a conversion between buckets: equal output or a named error, and never a torn part."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from random import Random

import pytest

import art_otel
from art_otel.engines import Conversion, convert
from art_otel.errors import ArtOtelError
from tests.conversions import FEW
from tests.engines.test_on_a_store import DUMPS, credentials, local, parts_in, run, server, undisturbed
from tests.examples import kills
from tests.fault_proxy import Asked, Fault

pytestmark = pytest.mark.store
_ = credentials, local, server, undisturbed  # fixtures that the tests here use

PROGRAM = textwrap.dedent("""
    import sys
    from art_otel.engines import Conversion, convert
    from tests.conversions import FEW
    convert(Conversion(sources=[sys.argv[1]], out=sys.argv[2], workers=1, sizes=FEW))
""")
KILLS = kills(6)


def first_time(fault: Fault, every: int) -> Callable[[Asked], Fault | None]:
    """Some requests have the fault, each of them once."""
    seen: set[tuple[str, str]] = set()

    def fault_of(asked: Asked) -> Fault | None:
        again = (asked.method, asked.path) in seen
        seen.add((asked.method, asked.path))
        return None if again or asked.number % every else fault

    return fault_of


@pytest.mark.parametrize(
    ("fault", "every"),
    [
        (Fault(status=503), 3),
        (Fault(status=500), 4),
        (Fault(cut_answer=0), 5),
        (Fault(cut_answer=100), 3),
        (Fault(cut_request=0), 5),
        (Fault(cut_request=100), 7),
        (Fault(stalls=True), 40),
    ],
)
def test_a_store_that_fails_now_and_then_changes_nothing(server, local, fault, every):
    out = server.url("data/now-and-then")
    server.fault_of = first_time(fault, every)
    report = run(server, out)
    server.reset()
    assert not report.unread
    assert parts_in(out) == local["few"]


def dataset(out) -> list[str]:
    return [one.rollout_id for one in art_otel.read_trajectories(out)]


@pytest.mark.parametrize(
    ("share", "fault"),
    [
        (0.0, Fault(status=503)),
        (0.3, Fault(status=403)),
        (0.6, Fault(cut_answer=10)),
        (0.9, Fault(status=503)),
        (0.97, Fault(cut_answer=10)),
    ],
)
def test_a_store_that_fails_for_good_is_named_and_keeps_the_dataset(server, local, share, fault):
    """From any request on; then the same conversion is not in the way of what is left of it."""
    out = server.url(f"data/for-good-{share}")
    convert(Conversion(sources=[server.url(f"data/dumps/{DUMPS[0].parent.name}")], out=out, sizes=FEW, workers=1))
    before = dataset(out)
    server.asked.clear()
    run(server, server.url(f"data/rehearsal-{share}"))
    last = int(len(server.asked) * share)
    server.asked.clear()
    server.fault_of = lambda asked: fault if asked.number >= last else None
    with pytest.raises(ArtOtelError, match="s3://data/"):
        run(server, out)
    server.reset()
    assert dataset(out) in (before, dataset(server.url(f"data/rehearsal-{share}")))
    run(server, out)
    assert parts_in(out) == local["few"]


def test_a_conversion_killed_at_any_request_changes_nothing(server, local):
    out = server.url("data/killed")
    convert(Conversion(sources=[server.url(f"data/dumps/{DUMPS[0].parent.name}")], out=out, sizes=FEW, workers=1))
    before = dataset(out)
    server.asked.clear()
    run(server, server.url("data/rehearsal"))
    total, random = len(server.asked), Random(24)
    for at in sorted(random.randrange(total) for _ in range(KILLS)):
        reached = threading.Event()
        server.asked.clear()

        def fault_of(asked: Asked, at: int = at, reached: threading.Event = reached) -> Fault | None:
            if asked.number >= at:
                reached.set()
                return Fault(stalls=True)
            return None

        server.fault_of = fault_of
        arguments = [server.url("data/dumps"), out]
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], start_new_session=True)
        while not reached.wait(0.1) and process.poll() is None:
            pass  # it may need fewer requests than the rehearsal
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        server.reset()
        assert dataset(out) in (before, dataset(server.url("data/rehearsal")))
    run(server, out)
    assert parts_in(out) == local["few"]


def test_two_writers_give_one_whole_dataset(server, local, tmp_path):
    """Of the same or of other dumps, one after the other or at once: the last that commits."""
    out = server.url("data/two")
    other = server.url(f"data/dumps/{DUMPS[0].parent.name}")
    run_of = {"all": server.url("data/dumps"), "one": other}
    whole = {"all": local["few"]}
    convert(Conversion(sources=[other], out=tmp_path, sizes=FEW, workers=1))
    whole["one"] = parts_in(str(tmp_path))
    for pair in (("all", "one"), ("all", "all"), ("one", "all")):
        processes = [
            subprocess.Popen([sys.executable, "-c", PROGRAM, run_of[name], out], stderr=subprocess.PIPE, text=True)
            for name in pair
        ]
        errors = [process.communicate()[1] for process in processes]
        assert parts_in(out) in [whole[name] for name in pair]
        failed = [one for process, one in zip(processes, errors, strict=True) if process.returncode]
        # Whose pending file ends while the other looks at it is a StorageError there.
        assert all("BusyError" in one or "StorageError" in one for one in failed), failed
