"""Qwen3's own template removes earlier reasoning: a turn then begins anew, unless the gateway keeps it."""

from itertools import pairwise

import httpx
import pytest

import art_otel
from tests.data.token_rollouts import EVERYTHING
from tests.model_gateway.gateways import gateway, recorded, user
from tests.trainers.environment import trainer_python

pytestmark = [pytest.mark.real_server, pytest.mark.xdist_group("vllm")]


@pytest.fixture(scope="session")
def template() -> str:
    """The template as Qwen3 was published with it; TRL has it beside its own."""
    python = trainer_python("qwen3-template", alone=("trl==1.16.0",))
    (path,) = python.parent.parent.glob("lib/python*/site-packages/trl/chat_templates/qwen3.jinja")
    return path.read_text(encoding="utf-8")


def talk(url: str, server: str, template: str) -> list[int]:
    """Three turns that reason; which calls of the rollout they are. An answer without reasoning is asked for again.

    So is one that ends its reasoning twice: the server shows the second end to nobody, so its text never comes back.
    """

    def token(text: str) -> str:
        ask = {"model": "tiny", "prompt": text, "add_special_tokens": False}
        return str(httpx.post(f"{server}/tokenize", json=ask, timeout=60).json()["tokens"][0])

    end = token("</think>")
    likely = {end: 3.5, token("<|im_end|>"): 3.5, token("<think>"): -100.0}
    more = {"model": "tiny", "max_tokens": 80, "temperature": 1.0, "chat_template": template, "logit_bias": likely}
    more["return_token_ids"] = True
    conversation, chosen, asked = [], [], 0
    for question in ("Hi", "And?", "More"):
        conversation += user(question)
        for seed in range(100):
            body = {"messages": conversation, "seed": seed, **more}
            (choice,) = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).json()["choices"]
            message, asked = choice["message"], asked + 1
            texts = [(message.get(name) or "").strip() for name in ("reasoning", "content")]
            if all(texts) and choice["finish_reason"] == "stop" and choice["token_ids"].count(int(end)) == 1:
                break
        else:
            pytest.fail("no seed gives an answer with reasoning")
        conversation.append({name: message[name] for name in ("role", "content", "reasoning")})
        chosen.append(asked - 1)
    return chosen


@pytest.mark.parametrize("keep_reasoning", [False, True])
def test_reasoning_that_the_template_removes_is_kept_where_it_is_asked_for(vllm, tmp_path, template, keep_reasoning):
    with gateway(tmp_path, vllm.url, tokens="exact", keep_reasoning=keep_reasoning) as running:
        chosen = talk(f"{running.url}/rollout/r", vllm.url, template)
        httpx.post(f"{running.url}/rollout/r/end", json={"reward": 1.0})
    (trajectory,) = recorded(tmp_path)
    turns = [trajectory.calls[number] for number in chosen]
    batches = art_otel.batches([trajectory], batch_size=1, **EVERYTHING)
    assert list(batches)
    for before, after in pairwise(turns):
        path = [*before.prompt_token_ids, *before.choices[0].token_ids]
        assert ([*after.prompt_token_ids][: len(path)] == path) is keep_reasoning
        assert after.extra.get("kept_reasoning", False) is keep_reasoning
        assert after.extra["prompt"] == ("spliced" if keep_reasoning else "differing")
        assert keep_reasoning or after.extra["prompt_reason"].startswith("reasoning removed at character")
    assert bool(batches.report.drifts) is not keep_reasoning
