"""Prompts of many messages, and many choices, which the SDK's default limits would drop, are whole in our provider."""

import json

import pytest

from tests.tracing.setup.programs import asking, run_code

pytestmark = pytest.mark.long

APP = """
import asyncio, json, os, art_otel
from openai import OpenAI

@art_otel.rollout
def solve():
    messages = [{"role": "user", "content": f"hi {number}"} for number in range(80)]
    OpenAI().chat.completions.create(model="m", messages=messages, n=70)
    art_otel.reward(1.0)

def gather():
    one = asyncio.run(art_otel.gather_trajectory(solve))
    with_ids = sum(turn.token_ids is not None for turn in one.turns)
    print(json.dumps([one.complete, len(one.calls[0].input_messages), with_ids]), flush=True)
"""
FORKED = "if os.fork() == 0:\n    gather()\n    os._exit(0)\nos.wait()"


@pytest.mark.parametrize("run", ["gather()", FORKED], ids=["here", "forked"])
@pytest.mark.parametrize("setting", [{}, {"ART_OTEL_ENABLED": "1"}], ids=["gathered alone", "enabled"])
def test_many_messages_and_many_choices_are_whole_under_openinference(tmp_path, server, run, setting):
    settings = {"ART_OTEL_INSTRUMENTOR": "openinference", "ART_OTEL_REQUEST_TOKENS": "1", **setting}
    found = run_code(tmp_path, f"{APP}\n{run}", **settings, **asking(server))
    assert [json.loads(line) for line in found.output.splitlines()] == [[True, 80, 70]], found.errors
