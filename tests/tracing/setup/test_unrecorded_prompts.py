"""Token ids of what no instrumentor recorded: they are written only if nothing that they spell is a secret."""

import pytest

from tests.conversions import convert_files
from tests.tracing.setup.programs import asking, run_code

pytestmark = pytest.mark.long

KEY = "ghp_" + "a1B2c3D4e5F6" * 3
ON = {"ART_OTEL_ENABLED": "1", "ART_OTEL_REQUEST_TOKENS": "1", "TRACELOOP_TRACE_CONTENT": "false"}


def attributes_of_calls(folder, server, asked, **settings):
    calls = "".join(f"OpenAI().chat.completions.create(model='m', {one})\n" for one in asked)
    found = run_code(folder, f"import art_otel\nfrom openai import OpenAI\n{calls}", **ON, **asking(server), **settings)
    spans = [span for span in found.spans if span["name"] == "openai.chat" and "endTimeUnixNano" in span]
    spans.sort(key=lambda span: int(span["startTimeUnixNano"]))
    return [{pair["key"]: pair["value"] for pair in span["attributes"]} for span in spans]


SECRET = f"messages=[{{'role': 'user', 'content': 'My key is {KEY}'}}]"


@pytest.mark.parametrize(
    ("asked", "settings", "is_written"),
    [
        (["messages=[{'role': 'user', 'content': 'redis://:hunter2@h'}]", SECRET], {}, [True, False]),
        pytest.param([SECRET], {"ART_OTEL_SCRUB": "off"}, [True], marks=pytest.mark.program),
        pytest.param(
            [
                "messages=[{'role': 'user', 'content': 'I am a@b.org'}]",
                "messages=[{'role': 'user', 'content': 'Hi'}], user='a@b.org'",
            ],
            {"ART_OTEL_SCRUB": "content"},
            [False, True],
            marks=pytest.mark.program,
        ),
    ],
)
def test_ids_are_written_where_the_prompt_is_clean(tmp_path, server, asked, settings, is_written):
    for found, written in zip(attributes_of_calls(tmp_path, server, asked, **settings), is_written, strict=True):
        content = ("gen_ai.prompt", "gen_ai.input", "art.request.messages")
        assert not [name for name in found if name.startswith(content)]
        assert ("art.tokens.prompt" in found) == ("art.tokens.completion.0" in found) == written
        assert found.get("art.scrubbed.content") == (None if written else {"boolValue": True})


@pytest.mark.parametrize(("instrumentor", "name"), [("openllmetry", "openai.chat"), ("auto", "chat m")])
@pytest.mark.parametrize("mode", ["on", pytest.param("mark", marks=pytest.mark.program)])
def test_a_secret_across_the_chunks_of_a_stream_is_not_spelled_by_ids(tmp_path, server, mode, instrumentor, name):
    asked = f"model='m', messages=[{{'role': 'user', 'content': 'Hi #say={KEY}'}}], stream=True"
    code = "import art_otel\nfrom openai import OpenAI\n@art_otel.rollout\ndef agent():\n"
    code += f"    for _ in OpenAI().chat.completions.create({asked}): pass\nagent()"
    chosen = {"ART_OTEL_SCRUB": mode, "ART_OTEL_INSTRUMENTOR": instrumentor}
    found = run_code(tmp_path, code, **ON, **asking(server), **chosen)
    (span,) = [span for span in found.spans if span["name"] == name and "endTimeUnixNano" in span]
    assert "art.scrubbed.content" in {pair["key"] for pair in span["attributes"]}
    ((trajectory,), _) = convert_files(tmp_path / "out", tmp_path / ".art" / "spool")
    (choice,) = trajectory.calls[0].choices
    assert (choice.token_ids is not None) == (mode == "mark")
    assert (KEY in str(found.spans)) == (mode == "mark")
