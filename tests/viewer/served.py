"""The viewer, served in this process or as `art-otel view` in one of its own, and a client that has its cookie."""

import gzip
import json
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from art_otel.calls import Message
from art_otel.cli import make_parser, view
from art_otel.http import Address
from art_otel.store import FileLimits, write_trajectories
from art_otel.trajectories import Reward, Trajectory
from art_otel.viewer.serving import Viewer
from tests.conversions import RECORDINGS, convert_files
from tests.data.rollouts import chat
from tests.data.rollouts import rollout as rollout_of
from tests.data.token_rollouts import talk
from tests.trajectories.calls import call, choice

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(1)> javascript:alert(1) \u202eeht\u2066 \u200b </script><!--"
)


@contextmanager
def viewer(*arguments: object) -> Iterator[httpx.Client]:
    """What `art-otel view` serves with these arguments, in a thread."""
    serving = Viewer(view._api(make_parser().parse_args(["view", *map(str, arguments)])), Address("127.0.0.1", 0))
    serving.start()
    try:
        with client_of(serving.url) as client:
            yield client
    finally:
        serving.stop()


@contextmanager
def viewer_process(*arguments: object) -> Iterator[httpx.Client]:
    """Ends the process at the end."""
    command = [sys.executable, "-m", "art_otel", "view", *map(str, arguments), "--no-open", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = (re.search(r"http://\S+", line) for line in process.stderr)  # transformers speaks first
        url = next(filter(None, said))
        with client_of(url[0]) as client:
            yield client
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def client_of(url: str) -> Iterator[httpx.Client]:
    """Opens the page, which gives the cookie."""
    with httpx.Client(base_url=f"http://{urlsplit(url).netloc}", timeout=60, follow_redirects=True) as client:
        assert client.get(url).status_code == 200
        yield client


def answer(client: httpx.Client, path: str, **query: object) -> dict:
    response = client.get(f"/api/{path}", params={name: str(value) for name, value in query.items()})
    assert response.status_code == 200, response.text
    return response.json()


def drifting() -> Trajectory:
    """A second call whose prompt was tokenized anew, and a third that continues it."""
    calls = [
        call(0, "a", [1, 2], choice("b", [3, 4])),
        call(1, "a b c", [1, 2, 9, 5], choice("d", [6])),
        call(2, "a b c d e", [1, 2, 9, 5, 6, 7], choice("f", [8])),
    ]
    return rollout_of(calls, "drifts", group_id="g", **rewarded(0.5))


def hostile() -> Trajectory:
    messages = [Message(role="user", content=HOSTILE), Message(role="assistant", content=HOSTILE, reasoning=HOSTILE)]
    return rollout_of(
        chat(*messages), HOSTILE, name=HOSTILE, metadata={HOSTILE: HOSTILE}, error=HOSTILE, logs=(HOSTILE,)
    )


def dataset(folder: Path) -> Path:
    """Rollouts with groups, rewards, drift, all that may be missing, and hostile texts, in small row groups."""
    made = [
        *(talk(f"r{number}", 3, 2, group_id="g", **rewarded(float(number))) for number in range(4)),
        drifting(),
        talk("alone", 5, split="val", training_step=3),
        talk("long", 40, group_id="h", **rewarded(1.0)),
        talk("broken", 2, status="error", error="boom"),
        talk("lacking", 2, incomplete_reasons={"no content": 1}, **rewarded(1.0)),
        hostile(),
    ]
    write_trajectories(made, folder, limits=FileLimits(group_rows=3, part_rows=6))
    return folder


def recorded(folder: Path) -> Path:
    """What real instrumentors recorded."""
    convert_files(folder, *sorted(RECORDINGS.glob("*/*.jsonl"))[:12])
    return folder


def rewarded(value: float) -> dict:
    return {"reward": value, "rewards": (Reward(name="reward", value=value, source="attribute", time_ns=1),)}


def exported(file: Path) -> tuple[str, dict]:
    """The text of an exported page with its data as text, and the responses in it."""
    text = file.read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="text/plain" id="art-otel-data">(.*?)</script>', text)
    data = gzip.decompress(b64decode(found)).decode()
    return text.replace(found, data.replace("<", "")), json.loads(data)["responses"]
