"""A stand-in for the Gemini API, which answers by a word in the last text: whole, as events and as an array."""

import json
import time
from contextlib import AbstractContextManager

from tests.stand_ins import Handler, listening

USAGE = {"promptTokenCount": 9, "candidatesTokenCount": 4, "totalTokenCount": 20, "thoughtsTokenCount": 7}
LOOK = {"functionCall": {"name": "look", "args": {"where": "Paris"}}}
LOOK_AGAIN = {"functionCall": {"id": "c-2", "name": "look", "args": {}}}


def parts_of(word: str) -> list[dict]:
    """What the model says."""
    thought = {"text": "Let me see. ", "thought": True}
    if word == "look":
        return [thought, {"text": "I look."}, {**LOOK, "thoughtSignature": "c2ln"}, LOOK_AGAIN]
    return [thought, {"text": f"You said {word}.", "thoughtSignature": "c2ln"}]


def responses(body: dict) -> list[dict]:
    """The responses of a stream; the last one has the finish reason."""
    word = body["contents"][-1]["parts"][-1].get("text", "result").rpartition(" ")[2]
    about = {"modelVersion": "gemini-test-001", "responseId": f"id-{word}"}
    if word == "blocked":
        feedback = {"blockReason": "SAFETY", "blockReasonMessage": "not here"}
        return [{"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 9}, **about}]
    if word == "malformed":
        candidate = {"index": 0, "finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "Malformed: look(("}
        return [{"candidates": [candidate], "usageMetadata": USAGE, **about}]
    if word == "cut":
        return [{"candidates": [{"index": 0, "finishReason": "MAX_TOKENS"}], "usageMetadata": USAGE, **about}]
    count = (body.get("generationConfig") or {}).get("candidateCount", 1)
    pieces = [piece for part in parts_of(word) for piece in _pieces(part)]
    events = [_response(index, [piece], None) for index in range(count) for piece in pieces]
    return [*(event | about for event in events), *(_response(index, [], "STOP") | about for index in range(count))]


def _pieces(part: dict) -> list[dict]:
    """A text in two pieces, as streams have it."""
    text = part.get("text", "")
    return [{**part, "text": text[:5]}, {**part, "text": text[5:]}] if text else [part]


def _response(index: int, parts: list[dict], reason: str | None) -> dict:
    ended = {} if reason is None else {"finishReason": reason}
    said = {"role": "model", "parts": parts} if parts else {"role": "model"}
    return {"candidates": [{"index": index, "content": said, **ended}], "usageMetadata": USAGE}


def whole(body: dict) -> dict:
    """The same in one response."""
    events = responses(body)
    indexes = {one["index"] for event in events for one in event.get("candidates", ())}
    if len(events) == 1:
        return events[0]
    word = events[0]["responseId"].removeprefix("id-")
    candidates = [
        {"index": index, "content": {"role": "model", "parts": parts_of(word)}, "finishReason": "STOP"}
        for index in sorted(indexes)
    ]
    return {**events[-1], "candidates": candidates}


class _Gemini(Handler):
    def answer(self, body: bytes) -> None:
        asked = json.loads(body)
        method = self.path.partition("?")[0].rpartition(":")[2]
        if method == "countTokens":
            self._send("application/json", json.dumps({"totalTokens": 9}).encode())
        elif "fail" in json.dumps(asked.get("contents", "")):
            error = {"code": 429, "message": "Resource exhausted", "status": "RESOURCE_EXHAUSTED"}
            self._send("application/json", json.dumps({"error": error}).encode(), status=429)
        elif method != "streamGenerateContent":
            self._send("application/json", json.dumps(whole(asked)).encode())
        elif "alt=sse" in self.path:
            events = [f"data: {json.dumps(event)}\r\n\r\n".encode() for event in responses(asked)]
            self._stream("text/event-stream", events, asked)
        else:
            texts = [json.dumps(event, indent=2) for event in responses(asked)]
            pieces = [f"{',' if at else '['}{text}\n".encode() for at, text in enumerate(texts)]
            self._stream("application/json", [*pieces, b"]\n"], asked)

    def _send(self, kind: str, data: bytes, status: int = 200) -> None:
        self.head(status, content_type=kind, content_length=len(data))
        self.wfile.write(data)

    def _stream(self, kind: str, pieces: list[bytes], body: dict) -> None:
        breaks, is_slow = (word in json.dumps(body) for word in ("break", "slow"))
        self.head(200, content_type=kind, transfer_encoding="chunked")
        for piece in pieces[: 2 if breaks else None]:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.flush()
            time.sleep(0.3 * is_slow)
        if breaks:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")


def gemini_server() -> AbstractContextManager[str]:
    """The address of a running one."""
    return listening(_Gemini)
