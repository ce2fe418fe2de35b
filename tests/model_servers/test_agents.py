"""Agents as they are, through a gateway with exact tokens, on a real vLLM: every call has its ids.

The model is random, so what it says is noise, which some agents refuse at last, and no tool is called; what agents ask
is what is tried here: their options, tools of every type and, with those that ask again, a conversation that goes on.
"""

import subprocess

import pytest

from tests.model_gateway.gateways import gateway, recorded
from tests.model_gateway.test_real_agents import NAMING_A_SESSION, NAMING_NOTHING, environment_of

pytestmark = [pytest.mark.real_server, pytest.mark.xdist_group("vllm")]


@pytest.mark.parametrize("agent", [*NAMING_A_SESSION, *NAMING_NOTHING])
def test_every_call_of_an_agent_has_its_ids(vllm, tmp_path, agent):
    (home := tmp_path / "home").mkdir()
    with gateway(tmp_path / "art", vllm.url, tokens="exact") as running:
        command, environment = agent(f"{running.url}/rollout/r", "Say hello.")
        known = {**environment_of(home), **environment}
        subprocess.run(command, env=known, cwd=home, check=False, timeout=600, stdin=subprocess.DEVNULL)
    (trajectory,) = recorded(tmp_path / "art")
    assert trajectory.complete, trajectory.incomplete_reasons
    assert trajectory.turns
    assert all(turn.tokens_untrained is None for turn in trajectory.turns)
    for call in trajectory.calls:
        assert call.extra["prompt"] in ("not_needed", "spliced"), call.extra
        assert call.prompt_token_ids is not None
        if call.usage is not None:  # a client asks for that of a stream, or does not
            assert call.usage.input_tokens == len(call.prompt_token_ids)
            assert call.usage.output_tokens == sum(len(choice.token_ids) for choice in call.choices)
        assert all(len(choice.token_ids) == len(choice.logprobs) for choice in call.choices)
