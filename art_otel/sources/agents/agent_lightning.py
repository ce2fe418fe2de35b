"""Archives of Agent Lightning 1.0: `archive.jsonl`, a rollout a line with its events; also its completed rollouts.

The events of an attempt are a rollout: each `model_request` is a call, with the bodies that the gateway sent and got
(token ids and logprobs in them) and the version of the server; each `reward` a reward. The attempts of a rollout share
its id. What else an agent posted is metadata, as it stands.

Invariant: an attempt is complete by what it says: one that did not end, or that failed, says so.

Source of the format: `agentlightning/schemas.py` (Rollout, Event, ModelRequestData, RewardData) and
`agentlightning/server/proxy.py` (https://github.com/microsoft/agent-lightning), 1.0.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from art_otel import attributes as names
from art_otel.sources.agents.session import Score, Session, SessionCall, document_reader
from art_otel.sources.backends.values import seconds_to_ns
from art_otel.sources.format import Refused, SourceFormat, converted
from art_otel.sources.json_documents import encode, head_detector, is_list, is_object, object_or_empty, text_or_none
from art_otel.spans import Span, Value

_NAME: Final = "agent-lightning"
_TERMINAL: Final = ("succeeded", "failed", "cancelled", "timeout")
_SPLITS: Final = {True: "train", False: "val"}


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    event_type: str
    timestamp: float
    data: dict[str, Value] = {}
    attempt_id: str | None = None


class _Status(msgspec.Struct, frozen=True, kw_only=True):
    state: str
    error_message: str | None = None
    created_at: float | None = None
    updated_at: float | None = None


class _Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """The times and the error stand in `status`, or in earlier versions beside it."""

    rollout_id: str
    status: _Status | str = ""
    input: Value = None
    is_train: bool | None = None
    metadata: dict[str, Value] | None = None
    created_at: float | None = None
    updated_at: float | None = None
    error_message: str | None = None
    data_id: str | None = None
    step: int | None = None
    rollout_state: str | None = None
    running_at: float | None = None
    finished_at: float | None = None


def _detects(line: dict[str, Value]) -> bool:
    rollout, events = line.get("rollout", line), line.get("events")
    return is_object(rollout) and "rollout_id" in rollout and is_list(events) and all(map(_is_event, events))


def _is_event(value: Value) -> bool:
    return is_object(value) and value.keys() >= {"event_type", "timestamp"}


def _spans(line: dict[str, Value]) -> Iterator[Span]:
    rollout = converted(line.get("rollout", line), _Rollout)
    attempts: dict[str | None, list[_Event]] = defaultdict(list)
    for event in converted(line.get("events"), list[_Event]):
        attempts[event.attempt_id].append(event)
    for number, (attempt_id, events) in enumerate(attempts.items() or {None: list[_Event]()}.items()):
        place = number if len(attempts) > 1 else None
        is_last = number >= len(attempts) - 1
        yield from _AttemptSpans(rollout, attempt_id, events, number=place, is_last=is_last).spans()


class _AttemptSpans:
    """The spans of one attempt: its `number` among several, None for the only one. The status is that of the last."""

    def __init__(
        self, rollout: _Rollout, attempt_id: str | None, events: list[_Event], *, number: int | None, is_last: bool
    ) -> None:
        self._rollout = rollout
        self._attempt_id = attempt_id
        self._number = number
        self._events = events
        self._is_last = is_last
        status = rollout.status
        self._status = (
            _Status(
                state=rollout.rollout_state or status,
                error_message=rollout.error_message,
                created_at=rollout.running_at or rollout.created_at,
                updated_at=rollout.finished_at or rollout.updated_at,
            )
            if isinstance(status, str)
            else status
        )
        run = "" if number is None else str(number)
        self._session = Session(_NAME, rollout.rollout_id, agent=_NAME, run=run)

    def spans(self) -> Iterator[Span]:
        for number, event in enumerate(self._events):
            if event.event_type == "model_request":
                yield self._session.call(_call(f"call {number}", event))
        yield self._root()

    def _root(self) -> Span:
        rollout, status = self._rollout, self._status
        others = [event for event in self._events if event.event_type not in ("model_request", "reward")]
        times = [event.timestamp for event in self._events]
        starts = [*times, *(_started(event) for event in self._events)]
        if not self._number and status.created_at is not None:
            starts.append(status.created_at)
        if self._is_last and status.updated_at is not None:
            times.append(status.updated_at)
        state = status.state.lower()
        has_ended = not self._is_last or state in _TERMINAL
        failed = not self._is_last or (state in _TERMINAL and state != _TERMINAL[0])
        if not starts:
            raise Refused("bad field", "rollout", "neither the span nor an event has a time")
        return self._session.rollout(
            _ns(min(starts)),
            _ns(max([*times, *starts])) if has_ended else None,
            attributes={
                names.ROLLOUT_ATTEMPT: self._number,
                names.SPLIT: None if rollout.is_train is None else _SPLITS[rollout.is_train],
                names.GROUP_ID: rollout.data_id,
                names.TRAINING_STEP: rollout.step,
            },
            metadata={
                "input": rollout.input,
                "attempt_id": self._attempt_id,
                **(rollout.metadata or {}),
                "events": [_as_posted(event) for event in others] or None,
            },
            scores=[_score(event) for event in self._events if event.event_type == "reward"],
            error=(state if self._is_last else "superseded", status.error_message or "") if failed else None,
        )


def _call(key: str, event: _Event) -> SessionCall:
    data = event.data
    request, response, server = (data.get(name) for name in ("request", "response", "server"))
    version = data.get("model_version", object_or_empty(server).get("version"))
    http_status = data.get("http_status")
    failed = data.get("status") == "error" or (isinstance(http_status, int) and http_status >= 400)
    error = object_or_empty(object_or_empty(response).get("error"))
    return SessionCall(
        key=key,
        model=text_or_none(data.get("model")) or text_or_none(object_or_empty(request).get("model")),
        start_ns=_ns(_started(event)),
        end_ns=_ns(event.timestamp),
        request=encode(request) if is_object(request) else None,
        response=None if failed or not is_object(response) else encode(response),
        missing=() if failed or is_object(response) else ("answer",),  # chunks of a stream, of gateways before 1.0
        error=(str(http_status or "error"), text_or_none(error.get("message")) or "") if failed else None,
        extra={} if version is None else {names.POLICY_VERSION: str(version)},
    )


def _started(event: _Event) -> float:
    """When a call began: an event is written when it has ended."""
    latency = event.data.get("latency_ms")
    return event.timestamp - (latency / 1000 if isinstance(latency, int | float) and latency > 0 else 0.0)


def _score(event: _Event) -> Score:
    said = (event.data.get(name) for name in ("message", "reason", "source"))
    explanation = "; ".join(text for text in said if isinstance(text, str) and text)
    value = event.data.get("value")
    return Score(name="reward", value=value, explanation=explanation or None, time_ns=_ns(event.timestamp))


def _as_posted(event: _Event) -> Mapping[str, Value]:
    return {"event_type": event.event_type, "timestamp": event.timestamp, "data": event.data}


def _ns(seconds: float) -> int:
    return seconds_to_ns(seconds, "timestamp")


FORMAT: Final = SourceFormat(
    name=_NAME,
    detects=head_detector(_detects),
    reads=document_reader(_spans),
    not_in_format=("tool spans",),
)
