"""The same spans in every format give the same trajectories, up to what the format says it cannot carry."""

import base64
import json
import struct
from pathlib import Path

import pytest

from art_otel.sources import FileStats, all_formats, format_named
from art_otel.trajectories import trajectory_json
from tests.conversions import RECORDINGS, built, convert_files, read_records, with_logs
from tests.dumps import attribute, chat_span, make_span, request_of, write_lines
from tests.examples import daily
from tests.sources.requests import damages_of, read_bytes
from tests.sources.writers import EVERY_WRITER, PARQUET_WRITERS, WRITERS, console

FILES = sorted(path for path in RECORDINGS.glob("*/*.jsonl") if not path.name.endswith(".logs.jsonl"))
TIMES = ("started_at", "ended_at", "start_ns", "end_ns", "time_ns")
ROUNDED_NS = 2000
BEGUN = 1_790_000_000_000_000_539
LINKING = ("zipkin-json of a collector", "mlflow-json")
"""Writers that write links though not all of their format's do."""

TABLES = [name for name in PARQUET_WRITERS if name.startswith("clickhouse")]
"""Their schema is one whatever they hold, so a file with many recordings tells as much as a file for each."""

LOSSES = ("attributes dropped", "content cut", "content not understood")
"""Why a call that lost attributes is incomplete: the second, where nobody counted what was dropped."""


def requests_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def lacks_of(name: str) -> tuple[str, ...]:
    return format_named(name.split(maxsplit=1)[0]).not_in_format


def comparable(value, lacks, times):
    """The value without what a format that lacks this cannot tell; its times go to `times`."""
    if isinstance(value, list | tuple):
        return [comparable(item, lacks, times) for item in value]
    if not isinstance(value, dict):
        return value
    left = {name: comparable(item, lacks, times) for name, item in sorted(value.items()) if name not in TIMES}
    times += [value[name] for name in TIMES if value.get(name) is not None]
    if "nanoseconds" in lacks and "rewards" in left:  # times that are rounded apart change the order within them
        left["rewards"] = sorted(left["rewards"], key=json.dumps)
    if "dropped counts" in lacks:
        left = {name: item for name, item in left.items() if name not in ("gaps", "untrained", "trained")}
    if "dropped counts" in lacks and "incomplete_reasons" in left:
        left["incomplete_reasons"] = {why: n for why, n in left["incomplete_reasons"].items() if why not in LOSSES}
        left.pop("complete")
    return left


def converted(out: Path, *sources: Path):
    trajectories, report = convert_files(out, *sources)
    return [trajectory_json(trajectory) for trajectory in trajectories], report


def read(*sources: Path, stats: FileStats | None = None) -> list[dict]:
    """The trajectories of sources without bad records, in the order of their names; `stats` is that of the first."""
    dump, *others = sources
    found = built([*read_records(dump, stats=stats), *read_records(*others)])
    return sorted(map(trajectory_json, found), key=lambda one: (one["rollout_id"], one["trace_id"]))


def check_equal(found, expected, lacks):
    for here, there in zip(found, expected, strict=True):
        texts = {name: str(value) for name, value in here["metadata"].items()}
        assert {name: str(value) for name, value in there["metadata"].items()}.items() <= texts.items()
    times, exact = [], []
    assert comparable(without_metadata(found), lacks, times) == comparable(without_metadata(expected), lacks, exact)
    allowed = ROUNDED_NS if "nanoseconds" in lacks else 0
    assert all(abs(time - right) <= allowed for time, right in zip(times, exact, strict=True))


def without_metadata(trajectories: list[dict]) -> list[dict]:
    """It may be text, and among it what the resource had."""
    return [{name: value for name, value in one.items() if name != "metadata"} for one in trajectories]


def named(recording: Path) -> str:
    return f"{recording.parent.name}-{recording.stem}"


@pytest.fixture(scope="module")
def recording(request) -> Path:
    return request.param


@pytest.fixture(scope="module")
def as_recorded(recording) -> list[dict]:
    """The trajectories of a recording as it is, once for all formats."""
    return read(*with_logs(recording))


DAILY = 16
"""Every day one of so many formats of each recording, and one of so many recordings in each format."""

EACH_IN_EACH = [
    pytest.param(path, name, id=f"{named(path)}-{name}", marks=[pytest.mark.fuzz] * ((number + at) % DAILY != 0))
    for number, path in enumerate(FILES)
    for at, name in enumerate(name for name in EVERY_WRITER if name not in TABLES)
]


@pytest.mark.parametrize(("recording", "name"), EACH_IN_EACH, indirect=["recording"])
def test_a_recording_in_another_format_gives_the_same_trajectory(name, recording, as_recorded, tmp_path):
    check_format(name, [recording], as_recorded, tmp_path)


WITH_LOGS = [path for path in FILES if len(with_logs(path)) > 1]


@pytest.mark.parametrize("recording", WITH_LOGS, indirect=True, ids=named)
def test_log_records_on_a_console_are_those_of_the_recording(recording, as_recorded, tmp_path):
    paths = with_logs(recording)
    dump = tmp_path / "agent.log"
    dump.write_bytes(console.write_with_logs(requests_of(recording), requests_of(paths[1])))
    check_equal(read(dump), as_recorded, lacks_of("console"))


FOLDERS = sorted({path.parent for path in FILES})
EACH_TABLE = [
    pytest.param(folder, name, id=f"{folder.name}-{name}", marks=[pytest.mark.fuzz] * ((number + at) % 4 != 0))
    for number, folder in enumerate(FOLDERS)
    for at, name in enumerate(TABLES)
]


@pytest.mark.parametrize(("folder", "name"), EACH_TABLE)
def test_recordings_in_one_table_give_the_same_trajectories(name, folder, tmp_path):
    recordings = [path for path in FILES if path.parent == folder]
    expected = read(*(path for one in recordings for path in with_logs(one)))
    check_format(name, recordings, expected, tmp_path)


def check_format(name: str, recordings: list[Path], expected: list[dict], folder: Path) -> None:
    """The recordings, in one dump of another format and with their log records, give what is expected."""
    dump = written_with(name, [request for one in recordings for request in requests_of(one)], folder)
    logs = [path for one in recordings for path in with_logs(one)[1:]]
    stats = FileStats()
    check_equal(read(dump, *logs, stats=stats), expected, lacks_of(name))
    assert stats.format == name.split(maxsplit=1)[0]


def packed(kind, values):
    data = struct.pack(f"<{len(values)}{kind}", *values)
    return f"{kind}4:{len(values)}:{base64.b64encode(data).decode()}"


def event(name: str, attributes: dict[str, object]) -> dict:
    return {"name": name, "attributes": [{"key": key, "value": attribute(value)} for key, value in attributes.items()]}


def root_span() -> dict:
    attributes = {
        "art.rollout.id": "r-1",
        "art.rollout.attempt": 2,
        "art.training.step": 7,
        "art.reward": 0.25,
        "art.metric.loss": 1e-7,
        "art.metric.count": 3,
        "art.metadata.seed": "0017",
    }
    said = event("art.log", {"art.log.message": 'said "hi|{x}"'})
    return make_span(0xA, name="rollout maze", attributes=attributes, events=[said])


def calls() -> list[dict]:
    """A call with tokens, and one that failed."""
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
    failure = {"status": {"code": 2, "message": "no such room"}, "events": [event("exception", raised)]}
    return [call, chat_span(0xD, 0xB, ["zażółć ☃", "gęślą\n", "go on"], None, **failure)]


def rollout(*, linked: bool) -> list[dict]:
    """A rollout with all that can be recorded: tokens, metrics, errors, steps, rewards, and settings of the process."""
    step = make_span(0xB, 0xA, name="step 0", attributes={"art.rollout.id": "r-1", "art.step.index": 0})
    call, failed = calls()
    score = {"gen_ai.evaluation.name": "taste", "gen_ai.evaluation.score.value": 0.75}
    judged = make_span(0xE, 0xA, name="judge", events=[event("gen_ai.evaluation.result", score)])
    reward = make_span(0xF, 0xA, name="reward quality", attributes={"art.reward": -1})
    if linked:
        reward["links"] = [{"traceId": call["traceId"], "spanId": call["spanId"]}]
    settings = {"service.name": "trainer", "art.group.id": "g-1", "art.split": "train"}
    spans = [root_span(), step, call, failed, judged, reward]
    for number, span in enumerate(spans):
        begun = BEGUN + number * 10_539  # no two of them end within what is rounded: the order of ends tells `end`
        span["startTimeUnixNano"], span["endTimeUnixNano"] = str(begun), str(begun + 999_999)
        for told in span.get("events", ()):
            told["timeUnixNano"] = str(BEGUN + number * 10_539 + 100)
    return [request_of(*spans, scope="lib", resource=settings)]


def written_with(name: str, requests: list[dict], folder: Path) -> Path:
    dump = folder / "dump"
    dump.write_bytes(EVERY_WRITER[name](requests))
    return dump


@pytest.mark.parametrize("linked", daily([True, False], one_in=2))
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
    assert (report.files[0].format, report.files[0].not_in_format) == (name.split(maxsplit=1)[0], lacks_of(name))
    check_equal(found, expected, lacks)
    (trajectory,) = found
    assert trajectory["calls"][0]["choices"][0]["token_ids"] is not None
    assert len(trajectory["rewards"]) == 3


@pytest.mark.parametrize("name", daily(EVERY_WRITER, one_in=4))
def test_a_second_copy_in_any_format_takes_nothing_away(name, tmp_path):
    requests = rollout(linked=True)
    otlp = write_lines(tmp_path / "otlp.jsonl", requests)
    expected, _ = converted(tmp_path / "expected", otlp)
    copy = written_with(name, requests, tmp_path)
    found, report = converted(tmp_path / "found", otlp, copy)
    assert (report.spans.used, report.spans.duplicate) == (6, 6)
    check_equal(found, expected, [what for what in lacks_of(name) if what == "nanoseconds"])
    assert converted(tmp_path / "other", copy, otlp)[0] == found


@pytest.mark.parametrize("name", WRITERS)
def test_a_dump_is_known_as_one_format_only(name):
    for requests in (rollout(linked=True), requests_of(FILES[0])):
        dump = WRITERS[name](requests)
        for head in (dump, dump[:3000], b"\xef\xbb\xbf" + dump, b"\x1e" + dump):
            assert [known.name for known in all_formats() if known.detects(head)] == [name.split(maxsplit=1)[0]]


@pytest.mark.parametrize("name", WRITERS)
def test_a_sequence_of_json_texts_is_read_as_its_texts(name, tmp_path):
    texts = [WRITERS[name]([request]) for request in (*rollout(linked=True), *requests_of(FILES[0]))]
    plain, _ = read_bytes(tmp_path, b"\n".join(texts))
    found, account = read_bytes(tmp_path, b"".join(b"\x1e" + text + b"\n" for text in texts))
    assert (account.format, damages_of(found)) == (name.split(maxsplit=1)[0], [])
    assert found == plain


def test_otlp_is_taken_for_nothing_else():
    for recording in FILES:
        head = recording.read_bytes()[: 1 << 20]
        assert [known.name for known in all_formats() if known.detects(head)] == ["otlp-json"], named(recording)
