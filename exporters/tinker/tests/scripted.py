"""A policy that answers from a script, by a renderer whose tokens are bytes."""

import asyncio
import re
from dataclasses import dataclass, field
from zlib import crc32

from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.renderers.base import format_content_as_string, parse_content_blocks
from tinker_cookbook.renderers.role_colon import RoleColonRenderer

from exporters.tinker.tests.addition import Bytes

END = "\n\nUser:"
CALL = '<tool_call>{"name": "look_up",  "arguments": {"city": "Zürich"}}</tool_call>'


class Renderer(RoleColonRenderer):
    """Role and colon, with Qwen's tool calls and thinking as tinker-cookbook parses them."""

    def render_message(self, message, ctx):
        calls = [f"<tool_call>{call.function.name}{call.function.arguments}</tool_call>" for call in _calls(message)]
        text = "".join([format_content_as_string(message["content"], separator=""), *calls])
        return super().render_message({**message, "content": text}, ctx)

    def parse_response(self, response):
        message, termination = super().parse_response(response)
        if termination.is_clean and (found := parse_content_blocks(message["content"])) is not None:
            message["content"], calls = found
            message["tool_calls"] = [call for call in calls if hasattr(call, "function")]
            message["unparsed_tool_calls"] = [call for call in calls if not hasattr(call, "function")]
        return message, termination


def _calls(message):
    return message.get("tool_calls") or ()


RENDERER = Renderer(Bytes())


@dataclass
class Scripted(TokenCompleter):
    """Gives each answer its own logprobs; a line's answers come after as many turns of the event loop as it says."""

    script: dict[str, list[tuple[str, str]]]
    asked: dict[str, int] = field(default_factory=dict)

    async def __call__(self, model_input, stop, *, max_tokens=None):  # noqa: ARG002 # as TokenCompleter
        line = re.search(r"#(\w+)", Bytes().decode(model_input.to_ints()))[1]
        number = self.asked[line] = self.asked.get(line, -1) + 1
        for _ in range(3 * (7 - number % 7)):  # later answers overtake earlier ones
            await asyncio.sleep(0)
        text, reason = self.script[line][number]
        tokens = list(text.encode())
        first = -1 - number - crc32(line.encode()) % 1000
        logprobs = [first - place / 64 for place in range(len(tokens))]
        return TokensWithLogprobs(tokens=tokens, maybe_logprobs=logprobs, stop_reason=reason)


SCRIPT = {
    "sum": [(f" 4{END}", "stop"), (f" 5{END}", "stop"), (" 4", "stop")],
    "agent": [(f" {CALL}{END}", "stop"), (f" <think>So</think>Rain.{END}", "stop")],
    "broken_frame": [(f" {CALL}{END}", "stop"), (" Rain", "stop")],
    "bad_call": [(f" <tool_call>{{no</tool_call>{END}", "stop"), (f" Rain.{END}", "stop")],
    "too_long_answer": [(f" {CALL}{END}", "stop"), (" Rai", "length")],
    "goes_on": [(" Rai", "length"), (f" Rain.{END}", "stop")],
    "overflow": [(f" {CALL}{END}", "stop")],
    "too_long_prompt": [],
    "one_turn": [(f" {CALL}{END}", "stop")],
    "no_turn": [],
    "rewriting": [(f" one{END}", "stop"), (f" two{END}", "stop")],
    "pair": [(f" {text}{END}", "stop") for text in ("a", "abcd", "ab", "abc")],
    "retry": [("ok", "stop"), ("break", "stop"), ("fine", "stop")],
    "single": [(f" 4{END}", "stop")],
    "injected": [(f" {CALL}{END}", "stop"), (f" Sun.{END}", "stop")],
}
