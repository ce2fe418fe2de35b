"""The same spans in every format give the same trajectories, up to what the format says it cannot carry."""

import base64
import json
import struct
from pathlib import Path

import pytest

from art_otel.sources import FORMATS, format_named
from art_otel.trajectories import trajectory_json
from tests.conversions import RECORDINGS, convert_files
from tests.dumps import chat_span, make_span, request_of, write_lines
from tests.sources.writers import EVERY_WRITER, WRITERS

FILES = sorted(path for path in RECORDINGS.glob("*/*.jsonl") if not path.name.endswith(".logs.jsonl"))
TIMES = ("started_at", "ended_at", "start_ns", "end_ns", "time_ns")
ROUNDED_NS = 2000
BEGUN = 1_790_000_000_000_000_539
LINKING = ("zipkin-json of a collector", "mlflow-json")
"""Writers that write links though not all of their format's do."""

LOSSES = ("attributes dropped", "cut JSON")
"""Why a call that lost attributes is incomplete: the second, where nobody counted what was dropped."""


def requests_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def lacks_of(name: str) -> tuple[str, ...]:
    return format_named(name.split(maxsplit=1)[0]).lacks


def comparable(value, lacks, times):
    """The value without what a format that lacks this cannot tell; its times go to `times`."""
    if isinstance(value, list | tuple):
        return [comparable(item, lacks, times) for item in value]
    if not isinstance(value, dict):
        return value
    left = {name: comparable(item, lacks, times) for name, item in sorted(value.items()) if name not in TIMES}
    times += [value[name] for name in TIMES if value.get(name) is not None]
    if "dropped counts" in lacks:
        left.pop("dropped_attributes", None)
    if "dropped counts" in lacks and "incomplete_reasons" in left:
        left["incomplete_reasons"] = {why: n for why, n in left["incomplete_reasons"].items() if why not in LOSSES}
        left.pop("complete")
    return left


def converted(out: Path, *sources: Path):
    trajectories, report = convert_files(out, *sources)
    return [trajectory_json(trajectory) for trajectory in trajectories], report


def check_equal(found, expected, lacks):
    for here, there in zip(found, expected, strict=True):
        kept = here.pop("metadata")  # it may be text, and among it what the resource had
        assert {name: str(value) for name, value in there.pop("metadata").items()}.items() <= {
            name: str(value) for name, value in kept.items()
        }.items()
    times, exact = [], []
    assert comparable(found, lacks, times) == comparable(expected, lacks, exact)
    allowed = ROUNDED_NS if "nanoseconds" in lacks else 0
    assert all(abs(time - right) <= allowed for time, right in zip(times, exact, strict=True))


@pytest.mark.parametrize("recording", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
@pytest.mark.parametrize("name", EVERY_WRITER)
def test_a_recording_in_another_format_gives_the_same_trajectory(name, recording, tmp_path):
    logs = [path for path in [recording.with_suffix(".logs.jsonl")] if path.exists()]
    dump = tmp_path / "dump"
    dump.write_bytes(EVERY_WRITER[name](requests_of(recording)))
    expected, _ = converted(tmp_path / "expected", recording, *logs)
    found, report = converted(tmp_path / "found", dump, *logs)
    assert (report.files[0].format, report.files[0].lacks) == (name.split(maxsplit=1)[0], lacks_of(name))
    assert not report.quarantine
    check_equal(found, expected, lacks_of(name))


def packed(kind, values):
    data = struct.pack(f"<{len(values)}{kind}", *values)
    return f"{kind}4:{len(values)}:{base64.b64encode(data).decode()}"


def rollout(*, linked: bool) -> list[dict]:
    """A rollout with all that can be recorded: tokens, metrics, errors, steps, rewards, and settings of the process."""
    root = make_span(
        0xA,
        name="rollout maze",
        attributes={
            "art.rollout.id": "r-1",
            "art.rollout.attempt": 2,
            "art.training.step": 7,
            "art.reward": 0.25,
            "art.metric.loss": 1e-7,
            "art.metric.count": 3,
            "art.metadata.seed": "0017",
        },
        events=[
            {
                "name": "art.log",
                "attributes": [{"key": "art.log.message", "value": {"stringValue": 'said "hi|{x}"'}}],
            }
        ],
    )
    step = make_span(0xB, 0xA, name="step 0", attributes={"art.rollout.id": "r-1", "art.step.index": 0})
    tokens = {
        "art.tokens.prompt": packed("i", [1, 2, 3]),
        "art.tokens.completion.0": packed("i", [4, 5]),
        "art.logprobs.completion.0": packed("f", [-0.5, -0.25]),
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.request.temperature": 1.0,
        "gen_ai.request.stop_sequences": ["a", "b"],
        "gen_ai.usage.output_tokens": 2,
    }
    call = chat_span(0xC, 0xB, ["zażółć ☃"], "gęślą\n", attributes=tokens)
    raised = {"exception.type": "builtins.ValueError", "exception.message": "no | such\nroom"}
    failed = chat_span(
        0xD,
        0xB,
        ["zażółć ☃", "gęślą\n", "go on"],
        None,
        status={"code": 2, "message": "no such room"},
        events=[
            {
                "name": "exception",
                "attributes": [{"key": name, "value": {"stringValue": value}} for name, value in raised.items()],
            }
        ],
    )
    score = [{"key": "gen_ai.evaluation.name", "value": {"stringValue": "taste"}}]
    score.append({"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": 0.75}})
    judged = make_span(
        0xE,
        0xA,
        name="judge",
        events=[{"name": "gen_ai.evaluation.result", "attributes": score}],
    )
    reward = make_span(0xF, 0xA, name="reward quality", attributes={"art.reward": -1})
    if linked:
        reward["links"] = [{"traceId": call["traceId"], "spanId": call["spanId"]}]
    settings = {"service.name": "trainer", "art.group.id": "g-1", "art.split": "train"}
    spans = [root, step, call, failed, judged, reward]
    for number, span in enumerate(spans):
        span["startTimeUnixNano"], span["endTimeUnixNano"] = str(BEGUN + number * 10_539), str(BEGUN + 999_999)
        for event in span.get("events", ()):
            event["timeUnixNano"] = str(BEGUN + number * 10_539 + 100)
    return [request_of(*spans, scope="lib", resource=settings)]


def written_with(name: str, requests: list[dict], folder: Path) -> Path:
    dump = folder / "dump"
    dump.write_bytes(EVERY_WRITER[name](requests))
    return dump


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("name", EVERY_WRITER)
def test_all_that_a_rollout_can_have(name, linked, tmp_path):
    lacks = lacks_of(name)
    if linked and name not in LINKING and any(what.startswith("links") for what in lacks):
        return
    requests = rollout(linked=linked)
    if "resource attributes" in lacks:
        requests[0]["resourceSpans"][0]["resource"]["attributes"] = []
    expected, _ = converted(tmp_path / "expected", write_lines(tmp_path / "otlp.jsonl", requests))
    found, report = converted(tmp_path / "found", written_with(name, requests, tmp_path))
    assert not report.quarantine
    check_equal(found, expected, lacks)
    (trajectory,) = found
    assert trajectory["calls"][0]["choices"][0]["token_ids"] is not None
    assert len(trajectory["rewards"]) == 3


@pytest.mark.parametrize("name", WRITERS)
def test_a_dump_is_known_as_one_format_only(name):
    for requests in (rollout(linked=True), requests_of(FILES[0])):
        dump = WRITERS[name](requests)
        for head in (dump, dump[:3000], b"\xef\xbb\xbf" + dump):
            assert [known.name for known in FORMATS if known.detects(head)] == [name.split(maxsplit=1)[0]]


@pytest.mark.parametrize("recording", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_otlp_is_taken_for_nothing_else(recording):
    head = recording.read_bytes()[: 1 << 20]
    assert [known.name for known in FORMATS if known.detects(head)] == ["otlp-json"]
