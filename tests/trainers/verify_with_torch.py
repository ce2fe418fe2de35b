"""Runs in torch's environment: plant a fault in what a tiny model sampled, and verify; print JSON, a fault a key.

The rollouts have two turns with a tool's result between them, and begin alike, as those of an agent do. What is
recorded without a fault are the model's own logprobs, computed row by row and token by token.
"""

import json
import math
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM, Qwen3NextConfig, Qwen3NextForCausalLM

import art_otel
from art_otel.calls import Choice, InferenceCall, Logprobs, Message, TokenIds
from art_otel.trajectories import Trajectory
from art_otel.trajectories.lineage import build_lineage
from art_otel.trajectories.model import PolicyVersions

ROLLOUTS = 24
VOCABULARY = 300
SYSTEM = list(range(2, 40))


def tiny_model(seed: int) -> Qwen3ForCausalLM:
    """A random model that tells contexts apart."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        initializer_range=0.15,
        dtype=torch.float32,
    )
    return Qwen3ForCausalLM(config).eval()


def linear_model() -> Qwen3NextForCausalLM:
    """A random model with a layer whose state no row of the cache is: it reads whole rows."""
    torch.manual_seed(3)
    config = Qwen3NextConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        layer_types=["linear_attention", "full_attention"],
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        linear_num_key_heads=1,
        linear_num_value_heads=2,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
        initializer_range=0.15,
        dtype=torch.float32,
    )
    return Qwen3NextForCausalLM(config).eval()


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """A call as the server answered it."""

    rollout: int
    prompt: list[int]
    ids: list[int]
    logprobs: list[float]
    temperature: float | None = None
    parameters: dict | None = None
    version: str = "1"


@torch.inference_mode()
def logprobs_of(model: PreTrainedModel, prompt: list[int], ids: list[int], temperature: float = 1.0) -> list[float]:
    """The log probability of each id behind the prompt."""
    logits = model(torch.tensor([prompt + ids])).logits[0] / temperature
    rows = logits.log_softmax(-1)
    return [rows[len(prompt) - 1 + place, token].item() for place, token in enumerate(ids)]


def sample(model: Qwen3ForCausalLM, lengths: random.Random) -> list[Sampled]:
    """Two turns for each rollout. The first turns of some rollouts are equal, as those of a sure policy are."""
    generator = torch.Generator().manual_seed(1)
    calls = []
    for rollout in range(ROLLOUTS):
        generator = generator.manual_seed(rollout // 2)
        prompt = [*SYSTEM, 40 + rollout % 4]
        for turn in range(2):
            ids: list[int] = []
            for _ in range(lengths.randint(6, 12) if turn else 8):
                with torch.inference_mode():
                    logits = model(torch.tensor([prompt + ids])).logits[0, -1]
                ids.append(int(torch.multinomial(logits.softmax(-1), 1, generator=generator)))
            calls.append(Sampled(rollout=rollout, prompt=prompt, ids=ids, logprobs=logprobs_of(model, prompt, ids)))
            prompt = [*prompt, *ids, 50 + rollout, 51, 52]
    return calls


def trajectories(calls: list[Sampled]) -> list[Trajectory]:
    """The recorded rollouts."""
    result = []
    for rollout in range(ROLLOUTS):
        recorded = [
            InferenceCall(
                trace_id=f"{rollout + 1:032x}",
                span_id=f"{number + 1:016x}",
                operation_name="chat",
                start_ns=2 * number + 1,
                end_ns=2 * number + 2,
                input_messages=(Message(role="user", content="?"),),
                prompt_token_ids=TokenIds.of(one.prompt),
                choices=(
                    Choice(
                        index=0,
                        message=Message(role="assistant", content="!"),
                        finish_reason="stop",
                        token_ids=TokenIds.of(one.ids),
                        logprobs=Logprobs.of(one.logprobs),
                    ),
                ),
                parameters={**(one.parameters or {}), **({"temperature": one.temperature} if one.temperature else {})},
                policy_version=one.version,
            )
            for number, one in enumerate(call for call in calls if call.rollout == rollout)
        ]
        lineage = build_lineage(recorded)
        result.append(
            Trajectory(
                rollout_id=f"r{rollout:02}",
                trace_id=f"{rollout + 1:032x}",
                reward=1.0,
                policy_version=PolicyVersions(first=recorded[0].policy_version, last=recorded[-1].policy_version),
                calls=lineage.calls,
            )
        )
    return result


def other_weights(model: Qwen3ForCausalLM, calls: list[Sampled]) -> list[Sampled]:
    """Version 2 was sampled before a small update of the head."""
    older = nudged(model)
    return [
        replace(one, version="2", logprobs=logprobs_of(older, one.prompt, one.ids)) if one.rollout % 2 else one
        for one in calls
    ]


def stale_head(model: Qwen3ForCausalLM, calls: list[Sampled]) -> list[Sampled]:
    """The server kept its head."""
    older = nudged(model)
    return [replace(one, logprobs=logprobs_of(older, one.prompt, one.ids)) for one in calls]


def stale_head_of_a_sure_policy(model: Qwen3ForCausalLM, calls: list[Sampled]) -> list[Sampled]:
    """The server kept its head, which nearly does not show in first turns: the policy is sure of them."""
    older = nudged(model)
    return [
        replace(one, logprobs=logprobs_of(older, one.prompt, one.ids))
        if place % 2
        else replace(one, logprobs=[logprob + 1e-4 for logprob in one.logprobs])
        for place, one in enumerate(calls)
    ]


def nudged(model: Qwen3ForCausalLM) -> Qwen3ForCausalLM:
    """The model with a head that is a little different."""
    other = tiny_model(0)
    other.load_state_dict(model.state_dict())
    torch.manual_seed(5)
    with torch.no_grad():
        other.lm_head.weight += 0.002 * torch.randn_like(other.lm_head.weight)
    return other


def another_model(_: Qwen3ForCausalLM, calls: list[Sampled]) -> list[Sampled]:
    """Another model altogether."""
    other = tiny_model(7)
    return [replace(one, logprobs=logprobs_of(other, one.prompt, one.ids)) for one in calls]


def tempered(model: Qwen3ForCausalLM, calls: list[Sampled]) -> list[Sampled]:
    """Half of the calls at temperature 0.7, with the logprobs of that distribution."""
    return [
        replace(one, temperature=0.7, logprobs=logprobs_of(model, one.prompt, one.ids, 0.7)) if one.rollout % 2 else one
        for one in calls
    ]


def raw_at_temperature(_: Qwen3ForCausalLM, calls: list[Sampled]) -> list[Sampled]:
    """No fault: sampled at 0.7, with the model's own logprobs."""
    return [replace(one, temperature=0.7) for one in calls]


def shifted(model: Qwen3ForCausalLM, calls: list[Sampled]) -> list[Sampled]:
    """Of the second prompts the recording lacks an id of the tool's result."""
    result = []
    for place, one in enumerate(calls):
        if place % 2:
            logprobs = logprobs_of(model, [*one.prompt[:-1], 60, 61, 62, *one.prompt[-1:]], one.ids)
            result.append(replace(one, logprobs=logprobs))
        else:
            result.append(one)
    return result


def shifted_inside(_: Qwen3ForCausalLM, calls: list[Sampled]) -> list[Sampled]:
    """From the third token on completions have the ids of the token behind."""
    return [replace(one, ids=[*one.ids[:2], *one.ids[3:], 2]) for one in calls]


def shortened(model: Qwen3ForCausalLM, calls: list[Sampled]) -> list[Sampled]:
    """The server read the latest 45 tokens only."""
    return [replace(one, logprobs=logprobs_of(model, one.prompt[-45:], one.ids)) for one in calls]


def first_tokens(model: Qwen3ForCausalLM, calls: list[Sampled]) -> list[Sampled]:
    """The first logprob of each completion is behind another end of the prompt."""
    return [
        replace(one, logprobs=[logprobs_of(model, [*one.prompt, 90], one.ids[:1])[0], *one.logprobs[1:]])
        for one in calls
    ]


def constrained(_: Qwen3ForCausalLM, calls: list[Sampled]) -> list[Sampled]:
    """A grammar left one token, then half of the probability."""
    return [
        replace(
            one,
            parameters={"min_tokens": 3},
            logprobs=[min(0.0, logprob + math.log(2)) for logprob in one.logprobs],
        )
        if one.rollout % 3 == 0
        else one
        for one in calls
    ]


def some_completions(_: Qwen3ForCausalLM, calls: list[Sampled]) -> list[Sampled]:
    """Two completions were another model's."""
    other = tiny_model(7)
    return [
        replace(one, logprobs=logprobs_of(other, one.prompt, one.ids)) if place in (11, 30) else one
        for place, one in enumerate(calls)
    ]


def last_completions(_: Qwen3ForCausalLM, calls: list[Sampled]) -> list[Sampled]:
    """Two rollouts end with ids of another call."""
    return [
        replace(one, ids=calls[place - 6].ids[: len(one.ids)] + one.ids[len(calls[place - 6].ids) :])
        if place in (11, 31)
        else one
        for place, one in enumerate(calls)
    ]


def noise(_: Qwen3ForCausalLM, calls: list[Sampled]) -> list[Sampled]:
    """Rounding that grows with the length."""
    numbers = random.Random(3)
    return [
        replace(
            one,
            logprobs=[
                logprob + numbers.gauss(0, 0.0002 * (len(one.prompt) - len(SYSTEM) + place))
                for place, logprob in enumerate(one.logprobs)
            ],
        )
        for one in calls
    ]


FAULTS: tuple[Callable[[Qwen3ForCausalLM, list[Sampled]], list[Sampled]], ...] = (
    *(other_weights, stale_head, stale_head_of_a_sure_policy, another_model, tempered, raw_at_temperature),
    *(shifted, shifted_inside, shortened, first_tokens, constrained, some_completions, last_completions, noise),
)


def main(folder: str) -> None:
    """Verify without a fault, and with each; write a dataset without a fault, one with one, and the model."""
    torch.set_num_threads(1)
    model = tiny_model(0)
    calls = sample(model, random.Random(0))
    model.train()
    results = {"none": art_otel.verify(trajectories(calls), model)}
    assert model.training
    for fault in FAULTS:
        results[fault.__name__] = art_otel.verify(trajectories(fault(model, calls)), model)
    linear = linear_model()
    relogged = [replace(one, logprobs=logprobs_of(linear, one.prompt, one.ids)) for one in calls]
    results["linear_attention"] = art_otel.verify(trajectories(relogged), linear)
    model.save_pretrained(f"{folder}/model")
    art_otel.write_trajectories(trajectories(calls), f"{folder}/right")
    art_otel.write_trajectories(trajectories(other_weights(model, calls)), f"{folder}/other_weights.parquet")
    found = {
        name: {
            "holds": result.holds,
            "tokens": result.all.tokens,
            "worst": result.all.worst,
            "line": str(result),
            "diagnoses": {one.name: [one.tokens, one.where] for one in result.diagnoses},
        }
        for name, result in results.items()
    }
    print(json.dumps({"tokens": sum(len(one.ids) for one in calls), "found": found}))


if __name__ == "__main__":
    main(sys.argv[1])
