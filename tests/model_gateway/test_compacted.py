"""What a server left out of a prompt, as it says itself, whole or in a stream."""

import json

import httpx
import pytest

from tests.model_gateway.gateways import MODEL, gateway, recorded, user
from tests.model_gateway.test_faults import answering


def events(*told: dict) -> bytes:
    return b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in told)


EDITS = {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 2, "cleared_input_tokens": 9}]}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "usage": {"output_tokens": 2}}
SAID = {"type": "text", "text": "yes"}
STREAMED = (
    {"type": "message_start", "message": {**MESSAGE, "content": []}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "compaction", "content": None}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "compaction_delta", "content": "Ada."}},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "yes"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
)
ITEMS = [
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "gA=="},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]},
]
RESPONSE = {"id": "resp_1", "object": "response", "status": "completed", "model": MODEL, "output": ITEMS}
LEFT_OUT = {
    "edits": ("messages", {**MESSAGE, "content": [SAID], "stop_reason": "end_turn", "context_management": EDITS}),
    "edits of a stream": ("messages", (STREAMED[0], STREAMED[3], {**STREAMED[4], "context_management": EDITS})),
    "a compaction of a stream": ("messages", STREAMED),
    "a compaction": ("responses", RESPONSE),
    "a compaction of a stream of items": ("responses", ({"type": "response.completed", "response": RESPONSE},)),
}


@pytest.mark.parametrize(("path", "answer"), LEFT_OUT.values(), ids=list(LEFT_OUT))
def test_what_a_server_left_out_of_a_prompt_is_recorded(tmp_path, path, answer):
    asked = {"model": MODEL, "max_tokens": 9, **({"input": "Hi"} if path == "responses" else {"messages": user("Hi")})}
    is_stream = isinstance(answer, tuple)
    body = events(*answer) if is_stream else json.dumps(answer).encode()
    head = {"content-type": "text/event-stream" if is_stream else "application/json", "content-length": str(len(body))}
    with answering((200, head, body)) as url, gateway(tmp_path, url) as running:
        httpx.post(f"{running.url}/rollout/r/v1/{path}", json={**asked, "stream": is_stream})
    (trajectory,) = recorded(tmp_path)
    assert trajectory.incomplete_reasons == {"compacted history": 1}
    (turn,) = trajectory.turns
    assert (turn.message.content, turn.text_untrained, turn.tokens_untrained) == ("yes", "content uncertain", None)
