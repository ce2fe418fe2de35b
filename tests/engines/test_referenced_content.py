"""Content that OTel's upload hook put into files: read where the user's sources are, named everywhere else."""

import json
import shutil
from pathlib import Path

import pytest

import art_otel
from art_otel.cli import main
from art_otel.engines.referenced_content import content_folders
from art_otel.sources import Limits
from tests.conversions import convert_files
from tests.dumps import write_lines
from tests.sources.requests import attributes

UPLOADED = Path(__file__).parent / "uploaded"
"""Two calls by genai-openai 1.3b0, `OTEL_INSTRUMENTATION_GENAI_COMPLETION_HOOK=upload`. DIR stands for the folder."""

QUESTION = "Find the thing ☃ 😀 please."


def copied(folder: Path, content: Path | None = None, named: Path | None = None) -> Path:
    """The dump in a folder, and its content in another, which the references name."""
    content = content or folder
    for each in (folder, content):
        each.mkdir(parents=True, exist_ok=True)
    for path in UPLOADED.glob("*.json"):
        shutil.copy(path, content)
    text = (UPLOADED / "spans.jsonl").read_text(encoding="utf-8").replace("/DIR", str(named or content))
    (folder / "spans.jsonl").write_text(text, encoding="utf-8")
    return folder


def changed(folder: Path, change) -> None:
    """Change the attributes of every span, a list of keys and values."""
    request = json.loads((folder / "spans.jsonl").read_text(encoding="utf-8"))
    for scoped in request["resourceSpans"][0]["scopeSpans"]:
        for span in scoped["spans"]:
            span["attributes"] = [one for pair in span["attributes"] for one in change(pair)]
    write_lines(folder / "spans.jsonl", [request])


def check_whole(trajectories) -> None:
    (one,) = trajectories
    assert one.complete
    assert [turn.text_untrained for turn in one.turns] == [None, None]
    first, second = one.calls
    assert [message.role for message in first.input_messages] == ["system", "user"]
    assert first.input_messages[1].content == QUESTION
    assert [message.role for message in second.input_messages] == ["system", "user", "assistant", "tool", "tool"]
    assert [call.name for call in first.choices[0].message.tool_calls] == ["lookup", "now"]
    assert [tool["function"]["name"] for tool in first.tools] == ["lookup", "now"]


@pytest.mark.parametrize("source", ["", "*", "spans.jsonl"])
def test_content_beside_the_dump_is_read(source, tmp_path):
    folder = copied(tmp_path / "dumps")
    trajectories, report = convert_files(tmp_path / "out", folder / source)
    check_whole(trajectories)
    assert report.hints == []
    assert {file.format for file in report.files if not file.spans} <= {"uploaded-content"}


def test_content_anywhere_below_a_named_folder_is_read(tmp_path):
    copied(tmp_path / "dumps/traces", tmp_path / "dumps/content/of/today")
    trajectories, _ = convert_files(tmp_path / "out", tmp_path / "dumps")
    check_whole(trajectories)


def test_content_that_was_copied_is_found_by_its_name(tmp_path):
    folder = copied(tmp_path / "dumps", named=Path("/srv/of another machine/prompts"))
    trajectories, _ = convert_files(tmp_path / "out", folder / "spans.jsonl")
    check_whole(trajectories)


def test_content_elsewhere_is_named_and_read_where_the_user_says_so(tmp_path, capsys):
    folder = copied(tmp_path / "dumps", tmp_path / "prompts")
    (one,), report = convert_files(tmp_path / "out", folder)
    assert one.incomplete_reasons == {"content not read": 2}
    first = one.calls[0]
    assert first.input_messages is None
    assert [(gap.kind, gap.field) for gap in first.gaps] == [
        ("not read", "prompt"),
        ("not read", "answer"),
        ("not read", "tools"),
    ]
    assert first.gaps[0].evidence.startswith(f"file://{tmp_path}/prompts/5d2f0979")
    assert len(report.hints) == 1
    assert report.hints[0].startswith(f"6 references to uploaded content not followed: file://{tmp_path}/prompts/")
    assert "--content" in report.hints[0]
    art_otel.convert(folder, tmp_path / "named", content=tmp_path / "prompts")
    check_whole(art_otel.read_trajectories(tmp_path / "named"))
    main(["convert", str(folder), "--out", str(tmp_path / "by command"), "--content", str(tmp_path / "prompts")])
    assert "1 complete" in capsys.readouterr().out
    check_whole(art_otel.read_trajectories(tmp_path / "by command"))


def test_one_message_a_line_and_instructions_of_their_own(tmp_path):
    """`OTEL_INSTRUMENTATION_GENAI_UPLOAD_FORMAT=jsonl`, and an instrumentor that has the instructions apart."""
    folder = copied(tmp_path / "dumps")
    for path in sorted(folder.glob("*.json")):
        items = json.loads(path.read_text(encoding="utf-8"))
        if path.name.endswith("_inputs.json"):
            instructions = [{"type": "text", "content": items.pop(0)["parts"][0]["content"], "index": 0}]
            write_lines(folder / "abc_system_instruction.jsonl", instructions)
        write_lines(path.with_suffix(".jsonl"), [item | {"index": at} for at, item in enumerate(items)])
        path.unlink()
    url = f"file://{folder}/abc_system_instruction.jsonl"

    def as_lines(pair):
        if pair["key"].endswith("_ref"):
            pair["value"]["stringValue"] += "l"
        yield pair
        if pair["key"] == "gen_ai.input.messages_ref":
            yield {"key": "gen_ai.system_instructions_ref", "value": {"stringValue": url}}

    changed(folder, as_lines)
    trajectories, _ = convert_files(tmp_path / "out", folder)
    check_whole(trajectories)
    assert "index" not in json.dumps(trajectories[0].calls[0].tools)
    (folder / "abc_system_instruction.jsonl").unlink()
    (one,), _ = convert_files(tmp_path / "again", folder)
    assert [(gap.kind, gap.field, gap.evidence) for gap in one.calls[0].gaps] == [("not read", "prompt", url)]
    assert one.turns[0].text_untrained == "content uncertain"


def test_events_refer_to_content_too(tmp_path):
    folder = copied(tmp_path / "dumps")
    moved: list[dict] = []

    def without_references(pair):
        if not pair["key"].endswith("_ref"):
            yield pair
        else:
            moved.append(pair)

    changed(folder, without_references)
    request = json.loads((folder / "spans.jsonl").read_text(encoding="utf-8"))
    spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    events = [
        {
            "traceId": span["traceId"],
            "spanId": span["spanId"],
            "timeUnixNano": span["endTimeUnixNano"],
            "eventName": "gen_ai.client.inference.operation.details",
            "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}, *pairs],
        }
        for span, pairs in zip(spans, (moved[:3], moved[3:]), strict=True)
    ]
    write_lines(folder / "logs.jsonl", [{"resourceLogs": [{"scopeLogs": [{"logRecords": events}]}]}])
    trajectories, _ = convert_files(tmp_path / "out", folder)
    check_whole(trajectories)


def secret(folder: Path) -> Path:
    """A file of the user's, which no dump may have read, although it looks like content."""
    path = folder / "secret.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('[{"role": "user", "parts": [{"type": "text", "content": "my secret"}]}]', encoding="utf-8")
    return path


def hostile_references(tmp_path: Path, dumps: Path):
    outside = secret(tmp_path / "home")
    (dumps / "link.json").symlink_to(outside)
    (dumps / "folder").symlink_to(tmp_path / "home")
    (dumps / ".hidden.json").write_bytes(outside.read_bytes())
    (dumps / "object.json").write_text('{"token": "my secret"}', encoding="utf-8")
    (dumps / "lines.jsonl").write_text('{"token": "my secret"}', encoding="utf-8")
    (dumps / "list.json").write_text('["my secret"]', encoding="utf-8")
    (dumps / "text.txt").write_bytes(outside.read_bytes())
    (dumps / "large.json").write_text(json.dumps([{"role": "user", "parts": ["my secret" * 1000]}]), encoding="utf-8")
    yield from (f"file://{outside}", str(outside), f"file://{dumps}/../home/secret.json", f"file://{dumps}/link.json")
    yield from (f"file://{dumps}/{name}" for name in ("folder/secret.json", ".hidden.json", "object.json", "list.json"))
    yield from (f"file://{dumps}/{name}" for name in ("text.txt", "large.json", "lines.jsonl", "none.json", "\0.json"))
    yield from (
        "http://127.0.0.1:1/secret.json",
        "s3://bucket/secret.json",
        "memory://secret.json",
        "file://",
        "x\0.json",
    )


def test_a_dump_reads_nothing_but_content_where_the_user_pointed(tmp_path):
    dumps = copied(tmp_path / "dumps")
    for url in hostile_references(tmp_path, dumps):
        copied(dumps)

        def named(pair, url=url):
            if pair["key"] == "gen_ai.input.messages_ref":
                pair["value"]["stringValue"] = url
            yield pair

        changed(dumps, named)
        (one,), report = convert_files(tmp_path / "out", dumps, limits=Limits(max_message_bytes=8000))
        assert one.incomplete_reasons == {"content not read": 2}, url
        assert [gap.evidence for gap in one.calls[0].gaps] == [url]
        assert "my secret" not in str(one)
        assert report.hints[0].startswith(f"2 references to uploaded content not followed: {url}")


def test_content_that_is_there_itself_is_not_looked_for(tmp_path):
    folder = copied(tmp_path / "dumps", tmp_path / "prompts")
    inputs = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "here"}]}])
    (pair,) = attributes(**{"gen_ai.input.messages": {"stringValue": inputs}})["attributes"]

    def with_inputs(one):
        yield one
        if one["key"] == "gen_ai.input.messages_ref":
            yield pair

    changed(folder, with_inputs)
    trajectories, _ = convert_files(tmp_path / "out", folder)
    assert trajectories[0].calls[0].input_messages[0].content == "here"
    assert {gap.field for gap in trajectories[0].calls[0].gaps} == {"answer", "tools"}


def test_the_folders_of_sources():
    sources = ["s3://b/traces/a.jsonl", "s3://b/t?region=x", "gs://b/t/*.json", "-", "dumps/*.jsonl"]
    assert content_folders(sources, ["s3://b/prompts/"]) == (
        "s3://b/prompts/",
        "s3://b/traces",
        "s3://b/t?region=x",
        "gs://b/t",
        str(Path.cwd() / "dumps"),
    )
