"""The model of the recipes: a tiny Llama that speaks the demo's language, and begins as one that calls any tool."""

import asyncio

import torch
from openai import OpenAI
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import art_otel
from art_otel.demo.agent import guide
from art_otel.demo.policy import END, IDS, LONGEST, UNKNOWN, Sampled
from art_otel.demo.task import Task, make_task


class TorchPolicy:
    """Samples from a model of torch, as the server asks for it; yours is served by vLLM."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    @torch.no_grad()
    def sample(self, prompt: list[int], seed: int | None) -> Sampled:
        """Sample a completion, up to and with its end."""
        chance, sampled = torch.Generator().manual_seed(seed or 0), Sampled([], [])
        while len(sampled.token_ids) < LONGEST and sampled.token_ids[-1:] != [IDS[END]]:
            scores = self.model(torch.tensor([[*prompt, *sampled.token_ids]])).logits[0, -1]
            logprobs = scores.double().log_softmax(0)
            token = int(torch.multinomial(logprobs.exp(), 1, generator=chance))
            sampled.token_ids.append(token)
            sampled.logprobs.append(float(logprobs[token]))
        return sampled


@art_otel.rollout
async def answer(url: str, task: Task, seed: int) -> None:
    """One rollout: the agent answers, and the answer is scored."""
    with OpenAI(base_url=url, api_key="none") as client:
        said = await asyncio.to_thread(guide, client, task.topic, task.city, task.readings, seed)
    art_otel.reward(task.score(said) + 0.1 * (said != ""))


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A token a word."""
    words = Tokenizer(models.WordLevel(IDS, unk_token=UNKNOWN))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token=END, pad_token=UNKNOWN)


def tiny_model() -> LlamaForCausalLM:
    """The model, the same each time."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(IDS), eos_token_id=IDS[END], **sizes))
    _warm_up(model)
    return model


def _warm_up(model: LlamaForCausalLM) -> None:
    """Let the model begin as one that calls a tool, any of them, and repeats what it said."""
    optimizer, tools = torch.optim.AdamW(model.parameters(), lr=1e-2), ("thermometer", "clock", "archivist")
    sampled = torch.tensor([8, 9, 10, 14, 15])
    for step in range(100):
        talks = []
        for number in range(12):
            task, tool = make_task(1, step, number), tools[number % 3]
            reading = task.readings["clock"][task.city]
            question = f"{' '.join(tools)} <user> {task.topic} in {task.city} <assistant> {tool} {task.city} <end>"
            talks.append(f"{question} <tool> {reading} <assistant> {reading} <end>")
        ids = torch.tensor([[IDS[word] for word in talk.split()] for talk in talks])
        scores = model(ids).logits[:, sampled - 1].flatten(0, 1)
        torch.nn.functional.cross_entropy(scores, ids[:, sampled].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
