"""Policy: a model that answers the same request in the same way, with token ids and log-probabilities.

Invariant: what stands before a completion in the next prompt has the very ids that this prompt and this completion had,
so that a conversation is one history. `#name=value` words in the last user message direct the answer:

    #words=20      how many words the text has              #calls=2       how many tools are called
    #say=HELLO     the text is just that                    #think=1       with reasoning
    #fail=429      the status, at every try                 #fail=429x1    … at the first try only
    #overflow=400  the status, with vLLM's words of a context that is too long
    #delay=0.1     seconds before the answer begins         #pace=0.01     seconds before each chunk of a stream
    #status=failed how an answer of the Responses API ends (completed, incomplete, failed, queued)
    #break=3       the connection breaks after three chunks #order=reversed  the last choice streams first
    #refuse=1      the text is a refusal                    #finish=abort  the finish reason (null: none)
"""

import hashlib
import json
import re
import zlib
from dataclasses import dataclass

END_ID = 2
_ROLE_IDS = {"system": 3, "developer": 4, "user": 5, "assistant": 6, "tool": 7, "function": 8}
_DIRECTION = re.compile(r"#(\w+)=(\S+)")
_TOKEN = re.compile(r"\s*\S+|\s+$")
_WORDS = ("the", "river", "turns", "north", "under", "seven", "grey", "clouds", "while", "ten", "boats", "wait")


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """One sampled completion; the logprobs are those of its ids, in order."""

    text: str | None
    reasoning: str | None
    tool_calls: tuple[dict, ...]
    refusal: str | None
    function_call: dict | None
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    told_finish: str | None = None

    @property
    def finish_reason(self) -> str | None:
        if self.told_finish:
            return None if self.told_finish == "null" else self.told_finish
        if self.function_call:
            return "function_call"
        return "tool_calls" if self.tool_calls else "stop"

    def message(self) -> dict:
        """As a chat response has it."""
        found: dict = {"role": "assistant", "content": self.text, "refusal": self.refusal}
        if self.reasoning:
            found["reasoning_content"] = self.reasoning
        if self.tool_calls:
            found["tool_calls"] = list(self.tool_calls)
        if self.function_call:
            found["function_call"] = self.function_call
        return found


def directions(messages: list[dict]) -> dict[str, str]:
    """What the last user message asks of the server."""
    users = [_text(message.get("content")) for message in messages if message["role"] == "user"]
    return dict(_DIRECTION.findall(users[-1])) if users else {}


def prompt_ids(messages: list[dict], tools: list[dict] | None) -> list[int]:
    """The ids of a rendered chat prompt."""
    ids = tokens(json.dumps(tools)) if tools else []
    for message in messages:
        ids += [_ROLE_IDS[message["role"]], *tokens(_rendered(message)), END_ID]
    return [*ids, _ROLE_IDS["assistant"]]


def sample(
    messages: list[dict], tools: list[dict] | None, index: int, functions: list[dict] | None = None
) -> Completion:
    """Choice `index` of the answer: a tool call for what a user asks where tools are there, else a text.

    Of the older `functions` one is called.
    """
    directed = directions(messages)
    seed = hashlib.sha256(json.dumps([messages, index]).encode()).hexdigest()
    last = messages[-1]["role"] if messages else "user"
    is_asked = last == "user" and "refuse" not in directed
    calls = _tool_calls(tools, seed, int(directed.get("calls", 1))) if tools and is_asked else ()
    function = _tool_calls(functions, seed, 1)[0]["function"] if functions and is_asked else None
    text = None if calls or function else directed.get("say") or _sentence(seed, int(directed.get("words", 12)))
    refusal, content = (text, None) if "refuse" in directed else (None, text)
    message = {"content": content, "refusal": refusal, "function_call": function, "tool_calls": list(calls)}
    ids = (*tokens(_rendered(message)), END_ID)
    return Completion(
        text=content,
        reasoning=f"I think of {seed[:6]}." if "think" in directed else None,
        tool_calls=calls,
        refusal=refusal,
        function_call=function,
        token_ids=ids,
        logprobs=tuple(-((number * 7 + at) % 40) / 16 for at, number in enumerate(ids)),
        told_finish=directed.get("finish"),
    )


def tokens(text: str) -> list[int]:
    """An id for each word with the space before it."""
    return [zlib.crc32(piece.encode()) % 150_000 + 100 for piece in _TOKEN.findall(text)]


def pieces(text: str) -> list[str]:
    """The text as it streams."""
    return _TOKEN.findall(text)


def _tool_calls(tools: list[dict], seed: str, count: int) -> tuple[dict, ...]:
    calls: list[dict] = []
    for at in range(count):
        function = tools[at % len(tools)].get("function") or tools[at % len(tools)]
        names = function.get("parameters", {}).get("properties", {})
        arguments = json.dumps({name: f"{name} {seed[at * 4 : at * 4 + 4]}" for name in names})
        made = {"name": function["name"], "arguments": arguments}
        calls.append({"id": f"call_{seed[:12]}_{at}", "type": "function", "function": made})
    return tuple(calls)


def _sentence(seed: str, words: int) -> str:
    numbers = (int(seed[at % 60 : at % 60 + 3], 16) + at // 60 for at in range(words))
    return " ".join(_WORDS[number % len(_WORDS)] for number in numbers) + f" {seed[:8]}."


def _rendered(message: dict) -> str:
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    functions += [message["function_call"]] if message.get("function_call") else []
    calls = [f"<call>{function['name']} {function['arguments']}" for function in functions]
    return "\n".join([_text(message.get("content")) or message.get("refusal") or "", *calls])


def _text(content: str | list | None) -> str:
    if isinstance(content, list):
        return " ".join(part.get("text") or json.dumps(part) for part in content)
    return content or ""
