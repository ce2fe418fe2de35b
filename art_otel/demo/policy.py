"""Policy: a softmax over the next token, in which every word that is read has a vote. A token is a word.

    thermometer clock archivist <user> hour in Oslo <assistant> clock Oslo <end> <tool> nine <assistant> nine <end>

    scores = sum over the words read of weights[previous token, word]        log p = scores - log sum exp scores

Invariant: the probability of a token depends on nothing but the tokens before it, so training computes from the ids of
a batch what the server computed when it sampled. In the next prompt, a completion and what stands before it have the
very tokens that they had before, so that a conversation is one history.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from art_otel.demo.task import CITIES, NUMBERS, READ_FROM

UNKNOWN, USER, TOOL, ASSISTANT, END = "<unknown>", "<user>", "<tool>", "<assistant>", "<end>"
TOOLS: Final = ("archivist", *READ_FROM.values())
VOCABULARY: Final = (UNKNOWN, USER, TOOL, ASSISTANT, END, "in", *READ_FROM, *CITIES, *TOOLS, *NUMBERS)
IDS: Final = {word: number for number, word in enumerate(VOCABULARY)}

ChatObject: TypeAlias = Mapping[str, Any]
"""A message or a tool as OpenAI's Chat Completions have it."""

FloatArray: TypeAlias = NDArray[np.float64]

SIZE: Final = len(VOCABULARY)
LONGEST: Final = 4
_HABIT: Final = 6.0
_SPEAKERS: Final = frozenset(IDS[role] for role in (USER, TOOL, ASSISTANT))


class Sampled(NamedTuple):
    """A completion and the log-probabilities of its tokens."""

    token_ids: list[int]
    logprobs: list[float]


class Example(NamedTuple):
    """A sampled token, the tokens before it, and how much better than others the rollout was that it is part of."""

    before: Sequence[int]
    token: int
    advantage: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """`weights[previous, read, next]` has shape (words, words, words)."""

    weights: FloatArray

    def logprobs(self, before: Sequence[int]) -> FloatArray:
        """The log-probability of each word to come next. Shape: (words,)."""
        scores = self.weights[before[-1], words_read(before)].sum(axis=0)
        highest = scores.max()
        return scores - highest - np.log(np.exp(scores - highest).sum())

    def sample(self, prompt: Sequence[int], seed: int | None) -> Sampled:
        """A completion, up to and with its end; another one each time where there is no seed."""
        chance = np.random.default_rng(seed)
        sampled = Sampled([], [])
        while len(sampled.token_ids) < LONGEST and sampled.token_ids[-1:] != [IDS[END]]:
            logprobs = self.logprobs([*prompt, *sampled.token_ids])
            token = int(np.argmax(logprobs + chance.gumbel(size=SIZE)))
            sampled.token_ids.append(token)
            sampled.logprobs.append(float(logprobs[token]))
        return sampled

    def gradient(self, examples: Iterable[Example]) -> FloatArray:
        """Compute the gradient of the sum of advantage times log-probability, in the shape of the weights."""
        gradient = np.zeros_like(self.weights)
        for before, token, advantage in examples:
            towards = -np.exp(self.logprobs(before))
            towards[token] += 1.0
            np.add.at(gradient, (before[-1], words_read(before)), advantage * towards)
        return gradient


def words_read(before: Sequence[int]) -> list[int]:
    """The tools that are offered and the last message before the one that is being written."""
    roles = [at for at, token in enumerate(before) if token in _SPEAKERS]
    here = max((at for at in roles if before[at] == IDS[ASSISTANT]), default=0)
    last = max((at for at in roles if at < here), default=0)
    return [*before[: min(roles, default=0)], *before[last + 1 : here]]


def untrained() -> Policy:
    """A policy that has habits and no sense.

    It calls one of the tools that are offered, answers with a number when it has read one, repeats what it reads rather
    than something else, and ends what it says. Which tool helps with which question it does not know.
    """
    weights = np.zeros((SIZE, SIZE, SIZE))
    tools, cities, numbers = ([IDS[word] for word in group] for group in (TOOLS, CITIES, NUMBERS))
    start = IDS[ASSISTANT]
    weights[start, tools, tools] += _HABIT
    weights[np.ix_([start], numbers, numbers)] += 2 * _HABIT
    weights[start, numbers, numbers] += _HABIT
    weights[np.ix_(tools, cities, cities)] += _HABIT
    for tool in tools:
        weights[tool, cities, cities] += _HABIT
    weights[cities + numbers, :, IDS[END]] += _HABIT
    return Policy(weights=weights)


def render(messages: Sequence[ChatObject], tools: Sequence[ChatObject]) -> list[int]:
    """The token ids of a prompt: the tools, the messages, and who speaks next."""
    words = list(map(_name, tools))
    for message in messages:
        words += [f"<{message['role']}>", *_words(message)]
    return [IDS.get(word, IDS[UNKNOWN]) for word in (*words, ASSISTANT)]


def parse(token_ids: Sequence[int], tools: Sequence[ChatObject]) -> dict[str, Any]:
    """A completion as a message: a tool call where it names an offered tool and a city, else a text."""
    match [word for number in token_ids if (word := VOCABULARY[number]) != END]:
        case [tool, city] if tool in map(_name, tools) and city in CITIES:
            function = {"name": tool, "arguments": json.dumps({"city": city})}
            call = {"id": f"call_{uuid4().hex}", "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case words:
            return {"role": "assistant", "content": " ".join(words)}


def _words(message: ChatObject) -> Iterator[str]:
    yield from (message.get("content") or "").split()
    for call in message.get("tool_calls") or ():
        yield from (_name(call), json.loads(call["function"]["arguments"])["city"])
    if message["role"] == "assistant":
        yield END


def _name(tool: ChatObject) -> str:
    return tool["function"]["name"]
