"""What the server really answered, in the words of a call."""

from art_otel.calls import Logprobs
from tests.gaps import unread
from tests.tracing.server import Exchange, ModelServer

_FIELDS = {"messages", "prompt", "input", "instructions", "model", "tools", "stream", "previous_response_id"}


def exchange_of(call, server: ModelServer) -> Exchange:
    """The request and answer that a call is about; a cancelled call's answer may come later than its successor's."""
    (found,) = [exchange for exchange in server.answered() if exchange.answer["id"] == call.response_id]
    return found


def check_whole(call, server: ModelServer) -> None:
    """The call says all that was asked and answered."""
    exchange = exchange_of(call, server)
    body, answer = exchange.body, exchange.answer
    assert call.request_model == body["model"]
    given = {name: value for name, value in body.items() if name not in _FIELDS and value is not None}
    assert {name: call.parameters.get(name) for name in given} == given
    if "output" not in exchange.answer:  # beside them instrumentors have parts of `reasoning` in words of their own
        assert call.parameters == given
    assert bool(call.stream) == bool(body.get("stream"))
    assert unread(call) == ()
    assert call.closed_by_app is None
    if "output" in answer:
        check_response(call, body, answer)
        return
    prompted = answer if "prompt_token_ids" in answer else answer["choices"][0]
    assert call.prompt_token_ids.tolist() == prompted["prompt_token_ids"]
    assert [choice.index for choice in call.choices] == list(range(len(answer["choices"])))
    for choice, sent in zip(call.choices, answer["choices"], strict=True):
        assert choice.finish_reason == sent["finish_reason"]
        check_beginning(choice, sent, len(sent["token_ids"]))


def check_response(call, body: dict, answer: dict) -> None:
    """The call says what an answer of the Responses API says, and what was asked for it."""
    (choice,) = call.choices
    texts = {kind: _texts(answer, kind) for kind in ("message", "reasoning")}
    assert choice.message.content == texts["message"]
    assert choice.message.reasoning == texts["reasoning"]
    called = [(item["call_id"], item["arguments"]) for item in answer["output"] if item["type"] == "function_call"]
    assert [(one.id, one.arguments) for one in choice.message.tool_calls] == called
    ended = "tool_calls" if called else "stop"
    assert choice.finish_reason == ("length" if answer["status"] == "incomplete" else ended)
    assert call.usage.input_tokens == answer["usage"]["input_tokens"]
    assert call.usage.output_tokens == answer["usage"]["output_tokens"]
    instructions = [body["instructions"]] if "instructions" in body else []
    assert [one.content for one in call.input_messages if one.role == "system"] == instructions
    if isinstance(body["input"], str):
        assert [one.content for one in call.input_messages if one.role == "user"] == [body["input"]]


def _texts(answer: dict, kind: str) -> str | None:
    items = [item for item in answer["output"] if item["type"] == kind]
    return "".join(part["text"] for item in items for part in item["content"]) or None


def check_beginning(choice, sent: dict, count: int | None = None) -> None:
    """The choice is the beginning of what was sent: its first `count` tokens, all that it has when None."""
    count = len(choice.token_ids) if count is None else count
    assert choice.token_ids.tolist() == sent["token_ids"][:count]
    assert choice.logprobs == Logprobs.of(_logprobs(sent)[:count])
    message = sent.get("message") or {"content": sent["text"]}
    assert (message["content"] or "").startswith(choice.message.content or "")
    made = [(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in message.get("tool_calls", ())]
    for found, (call_id, name, arguments) in zip(choice.message.tool_calls, made, strict=False):
        assert (found.id, found.name, found.exact) == (call_id, name, True)
        assert arguments.startswith(found.arguments)
    if count == len(sent["token_ids"]):
        assert choice.message.content == message["content"]
        assert [found.arguments for found in choice.message.tool_calls] == [arguments for _, _, arguments in made]
        assert choice.message.reasoning == message.get("reasoning_content")


def _logprobs(sent: dict) -> list[float]:
    if "content" in sent["logprobs"]:
        return [entry["logprob"] for entry in sent["logprobs"]["content"]]
    return sent["logprobs"]["token_logprobs"]
