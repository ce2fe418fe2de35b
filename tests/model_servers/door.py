"""Door: stands before a model server, keeps what was asked of it, and has the model call a tool once.

A random model calls none, so that no agent would go on. Its request stays as it is: what is sampled is bound to the
text of a call where the request offers the tool and has no result yet.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx

from tests.stand_ins import Handler, listening

_RESULTS = ('"role":"tool"', '"type":"tool_result"', '_call_output"', '"functionResponse"')
"""What a request has, written without spaces, that gives a tool's result."""

CHAT = "/v1/chat/completions"
SAMPLES_FROM_IDS = "/inference/v1/generate"


class Called(NamedTuple):
    """A tool, and the fields of Chat Completions that bind what is sampled to a call of it."""

    tool: str
    bound: dict[str, Any]


def called(tool: str, arguments: str) -> Called:
    """What binds vLLM, in the words of its Hermes parser. `arguments` are a regular expression."""
    call = rf'<tool_call>\n\{{"name": "{tool}", "arguments": {arguments}\}}\n</tool_call>'
    return Called(tool, {"structured_outputs": {"regex": call}})


@dataclass
class Door:
    """`asked` are the paths, in order, without those of requests by which a gateway finds out what there is."""

    url: str = ""
    asked: list[str] = field(default_factory=list)


@contextmanager
def door(server: str, call: Called | None = None) -> Iterator[Door]:
    """A running door. Without `call` everything passes as it is."""
    opened, bound = Door(), set[str]()

    class Passing(Handler):
        def do_GET(self) -> None:  # noqa: N802 # the name that http.server looks for
            """Pass a request without a body, as for the models that there are."""
            self.answer(b"")

        def answer(self, body: bytes) -> None:
            """Pass a request, and its answer piece by piece."""
            path, fields = self.path.partition("?")[0], _fields(body)
            if fields and fields.get("max_tokens") != 1:
                opened.asked.append(path)
            if path == SAMPLES_FROM_IDS and fields.get("request_id") in bound:
                fields["sampling_params"] |= call.bound
                fields["reasoning_ended"] = True  # as below; what is asked as a Response has no template's argument
            elif path == CHAT and _is_first(fields, call):
                fields |= call.bound
            if call is not None:
                _answer_at_once(fields)
            sent = json.dumps(fields).encode() if fields else body
            headers = {
                name: value for name, value in self.headers.items() if name.lower() not in ("host", "content-length")
            }
            with httpx.stream(self.command, f"{server}{self.path}", content=sent, headers=headers, timeout=600) as said:
                kind = said.headers.get("content-type", "")
                self.close_connection = True
                self.head(said.status_code, content_type=kind, connection="close")
                whole = b""
                for piece in said.iter_raw():
                    whole += piece
                    self.wfile.write(piece)
                    self.wfile.flush()
            if path.endswith("/render") and _is_first(fields, call):
                bound.add(_fields(whole).get("request_id"))

    with listening(Passing) as opened.url:
        yield opened


def _fields(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _answer_at_once(request: dict[str, Any]) -> None:
    """Have nothing taken for reasoning: a grammar is held only against what comes behind that."""
    for asked in (request, request.get("chat_request") or {}):
        if "messages" in asked:
            asked.setdefault("chat_template_kwargs", {"enable_thinking": False})


def _is_first(request: dict[str, Any], call: Called | None) -> bool:
    if call is None:
        return False
    offered = [str((tool.get("function") or tool).get("name")) for tool in request.get("tools") or ()]
    text = json.dumps(request, separators=(",", ":"))
    return call.tool in offered and not any(result in text for result in _RESULTS)
