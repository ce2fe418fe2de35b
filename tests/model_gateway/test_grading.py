"""What a server gives to rollouts, as `art-otel doctor --server` finds it by asking."""

import json

import pytest

from art_otel.cli import main
from art_otel.model_gateway.grading import ServerGrade
from tests.model_gateway.record_vllm import serving
from tests.tracing.server import ModelServer

JSON = "application/json"


def findings(capsys, url: str) -> dict[str, str]:
    code = main(["doctor", "--server", url, "--model", "m", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert code == (0 if said["ok"] else 1)
    return {finding["name"]: finding["text"] for finding in said["findings"]}


@pytest.mark.parametrize("options", [(), ("--chat-only",), ("--sglang",), ("--strict",)])
def test_a_server_is_graded_by_what_it_answers(tmp_path, capsys, options):
    with ModelServer(tmp_path, *options) as server:
        found = findings(capsys, server.url)
    has_others = "--chat-only" not in options
    assert found["Chat Completions"] == "yes"
    assert found["Messages"].startswith("yes" if has_others else "no; the gateway translates it")
    assert found["generateContent"].startswith("no; the gateway translates it")
    ids = "none" if "--strict" in options else "whole"
    assert (found["token ids"], found["token ids of streams"]) == (ids, ids)
    assert found["prompt ids"] == ("no" if "--strict" in options else "yes")
    assert found["exact tokens"] == "no"


@pytest.mark.parametrize(("scale", "expected"), [(0.0, "raw"), (1.0, "processed")])
def test_logprobs_at_two_temperatures_show_of_what_they_are(capsys, scale, expected):
    def answer(path: str, body: str) -> tuple[int, str, str]:
        asked = json.loads(body)
        if not path.endswith("/chat/completions") or not asked:
            return (400 if path.endswith("/chat/completions") else 404, JSON, "{}")
        factor = 1 + scale * (1 / asked["temperature"] - 1)
        odds = [{"token": text, "logprob": logprob * factor} for text, logprob in (("a", -0.5), ("b", -1.5))]
        logprobs = {"content": [{**odds[0], "top_logprobs": odds}, {**odds[0], "top_logprobs": odds}]}
        choice = {"index": 0, "message": {"role": "assistant", "content": "aa"}, "finish_reason": "length"}
        choice |= {"logprobs": logprobs, "token_ids": [1]}
        usage = {"prompt_tokens": 3, "completion_tokens": 2}
        return (200, JSON, json.dumps({"id": "c", "model": "m", "choices": [choice], "usage": usage}))

    with serving(answer) as url:
        found = findings(capsys, url)
    assert found["logprobs"] == expected
    assert found["token ids"] == "with holes"  # one id of two tokens


def test_what_llama_leaves_out_is_said_whatever_a_short_answer_shows():
    given = ServerGrade(
        url="http://llama",
        model="m",
        owner="llamacpp",
        dialects={"chat": True},
        whole_ids="whole",
        streamed_ids="whole",
        has_prompt_ids=False,
        logprobs="raw",
        samples_from_ids=False,
    )
    assert [advice.partition(":")[0] for advice in given.advice()] == [
        "prompt ids",
        "token ids",
        "token ids of streams with tools",
    ]


@pytest.mark.parametrize(("status", "missing"), [(401, "--api-key KEY"), (400, "--model M")])
def test_what_is_missing_to_ask_a_server_is_said(capsys, status, missing):
    with serving(lambda *_: (status, JSON, "{}")) as url:
        main(["doctor", "--server", url])
    assert missing in capsys.readouterr().out


def test_a_server_that_is_not_there_is_a_problem(capsys):
    assert "does not answer" in findings(capsys, "http://127.0.0.1:9")["server"]
