"""Agent Lightning's environment builds, and it and art-otel see the same calls and ids in the same bytes."""

import json
import subprocess
from base64 import b64encode
from pathlib import Path

import pytest
from google.protobuf import json_format
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from tests.benchmarks.batches import peer_python, run_ours, run_peer
from tests.benchmarks.peer_dump import FIRST_PROMPT, LAST_PROMPT, write_peer_dump
from tests.conversions import convert_files

pytestmark = pytest.mark.trainer

ROLLOUTS, CALLS = 3, 4
TURN = (LAST_PROMPT - FIRST_PROMPT) // (CALLS - 1)
RECORDED = Path(__file__).parents[1] / "conventions" / "recorded"


@pytest.mark.parametrize("kind", ["both", "theirs"])
def test_both_see_the_same_calls_and_ids(tmp_path, kind):
    dump = tmp_path / "dump.bin"
    write_peer_dump(dump, ROLLOUTS, CALLS, kind)
    theirs = run_peer(dump)
    assert theirs["spans"] == ROLLOUTS * (CALLS + 2)
    assert theirs["calls"] == ROLLOUTS * CALLS
    assert theirs["sampled_ids"] == ROLLOUTS * CALLS * (TURN // 2)
    for run in ("spans", "through-parquet"):
        ours = run_ours(run, dump)
        assert ours["spans"] == theirs["spans"]
        assert ours["completions"] == theirs["calls"]
        assert ours["trained_tokens"] == theirs["sampled_ids"]
        # Theirs are the prompts of all calls one after the other; ours is each rollout's tokens once.
        assert ours["tokens"] == ROLLOUTS * (LAST_PROMPT + TURN // 2)


@pytest.mark.parametrize(("name", "adapter"), [("agentops", "tracer"), ("litellm", "proxy")])
def test_its_own_dumps_give_the_same_ids_and_logprobs(tmp_path, name, adapter):
    recording = RECORDED / f"al-{name}.jsonl"
    theirs = {found["response_id"]: found for found in triplets(adapter, recording, tmp_path / "requests.bin")}
    trajectories, _ = convert_files(tmp_path / "out", recording)
    calls = [call for trajectory in trajectories for call in trajectory.calls]
    assert sorted(call.response_id for call in calls) == sorted(theirs)
    for call in calls:
        triplet = theirs[call.response_id]
        choice = call.choices[0]
        assert list(call.prompt_token_ids or ()) == triplet["prompt"]
        assert list(choice.token_ids or ()) == triplet["response"]
        if adapter == "tracer":  # that of the proxy leaves logprobs out
            assert list(choice.logprobs or ()) == triplet["logprobs"]


def triplets(adapter: str, recording: Path, requests: Path) -> list[dict]:
    """What Agent Lightning makes of a recording of OTLP JSON."""
    with requests.open("wb") as file:
        for line in recording.read_text(encoding="utf-8").splitlines():
            request = json_format.ParseDict(json.loads(line, object_hook=_with_base64_ids), TracesData())
            data = request.SerializeToString()
            file.write(len(data).to_bytes(4) + data)
    script = Path(__file__).parent / "triplets_of.py"
    done = subprocess.run(
        [str(peer_python()), str(script), adapter, str(requests)], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def _with_base64_ids(fields: dict) -> dict:
    """OTLP JSON has ids in hex, protobuf's own JSON in base64."""
    for name in ("traceId", "spanId", "parentSpanId"):
        if name in fields:
            fields[name] = b64encode(bytes.fromhex(fields[name])).decode()
    return fields
