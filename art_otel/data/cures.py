"""Cures: what each reason why something is missing or not trained means, and what helps.

Invariant: a cure says what to do, not what happened. Reasons that follow from the user's own options need none. Reports
of batches and exports, the command line and the viewer's page take theirs from here.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from art_otel.data.choosing import SEVERAL
from art_otel.data.model_names import HOW_TO_WRITE
from art_otel.trajectories import explain

_INCOMPLETE: Final = "incomplete: "


class Cure(NamedTuple):
    """What a reason means, and what to do about it."""

    means: str
    helps: str

    def __str__(self) -> str:
        """Both as sentences."""
        return f"{self.means[:1].upper()}{self.means[1:]}. {self.helps}"


def cure_of(reason: str) -> Cure:
    """What a skip reason means, and what helps."""
    gap = reason.removeprefix(_INCOMPLETE)
    return cure_of_gap(gap) if gap != reason else _CURES.get(reason, _OF_USERS)


def helps_against(reasons: Iterable[str]) -> dict[str, str]:
    """What to do about each of these reasons, by the reason; those of an exporter of its own have none.

    A report may say of what a reason is: `completions: another model`.
    """
    helps: dict[str, str] = {}
    for reason in reasons:
        named = reason if reason.startswith(_INCOMPLETE) else reason.rpartition(": ")[2]
        if (cure := cure_of(named)) is not _OF_USERS:
            helps[named] = cure.helps
    return helps


def cure_of_gap(gap: str) -> Cure:
    """What it means that a trajectory is incomplete for this reason, and what helps."""
    # An explanation ends with advice in brackets, for who has no room for more.
    return Cure(explain(gap).partition(" (")[0], _HELPS.get(gap, _UNKNOWN))


def show_reason(reason: str, count: int, cure: Cure) -> dict[str, Any]:
    """The reason as a row of a table."""
    return {"reason": reason, "count": count, **cure._asdict()}


_UNKNOWN: Final = "Look at the trajectory, with the version of art-otel that converted it."
_OF_USERS: Final = Cure("a reason of your own options", "Look at the option that gives it.")

_HELPS: Final = {
    "missing root": "Convert all files of the rollout together. A process that was killed never ended its rollout:"
    " sample it again.",
    "missing parent": "Convert the files of all services together, and turn samplers off.",
    "not ended": "Read streams to their end, and let the process end its spans before it exits.",
    "attributes dropped": "Set OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=100000 in the app that records.",
    "rollout attributes dropped": "Set OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=100000 in the app that records.",
    "call overwritten": "Record the calls with an instrumentor of their own, not with LiteLLM's callback on our span.",
    "events dropped": "Set OTEL_SPAN_EVENT_COUNT_LIMIT=100000 in the app that records.",
    "content cut": "Unset OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT in the app, or raise the limit of the backend.",
    "content masked": "Switch the masking of the recorder or backend off for these traces.",
    "no content": "Switch content capture on in the instrumentor (docs/how-to/capture-content.md). Where messages are"
    " in log records, convert those too.",
    "content not read": "Name the folder or URL with the content that spans refer to, with --content of art-otel"
    " convert (docs/how-to/dumps.md).",
    "request not logged whole": "If what the log leaves out does no harm, name the reason in allow_incomplete"
    " (docs/how-to/coding-agents.md).",
    "unknown history": "Convert the earlier files too. With the Responses API, record from the first call on, or send"
    " whole prompts.",
    "unknown template": "Send the text itself, not the name of a template on the server.",
    "compacted history": "Switch the server's context management off for rollouts, or compact in the app, so that the"
    " prompt that is sent is the one that the model reads. Token ids from the server are trained all the same where the"
    " reason is named in allow_incomplete.",
    "content not understood": "Record with another instrumentor, or report the attributes to us.",
    "several prompts": "Send one prompt a request.",
    "lossy recorder": "Record with the instrumentor of the client (docs/spec/recorders.md).",
    "more counted than recorded": "Record with the instrumentor of the client, and from the first call of the"
    " conversation on; calls[].gaps has both numbers (docs/spec/recorders.md).",
    "token ids missing": "Sample with a server that lists all ids, as vLLM does, or name the reason in allow_incomplete"
    " to train the text.",
    "call missing": "Raise the exporter's time-out and queue, or record to a spool (docs/how-to/receive.md).",
    "request unread": "Let the agent ask for /v1/chat/completions, /v1/responses, /v1/messages or Gemini's"
    " :generateContent (docs/how-to/gateway.md). If the request asked for no completion, name the reason in"
    " allow_incomplete.",
    "unsampled answer": "Raise the exporter's time-out and queue, or record to a spool. If the app wrote the answers"
    " itself, name the reason in allow_incomplete.",
    "spans missing": "Set OTEL_BSP_MAX_QUEUE_SIZE=65536 in the app, or record to a spool.",
    "spans unassigned": "Pass the trace on to the service that recorded them (traceparent), or set art.rollout.attempt"
    " on its spans.",
    "span quarantined": "The dataset's _report.json names the file, the line and why; mend what wrote it.",
    "value quarantined": "The dataset's _report.json names the file, the line and why; mend what wrote it.",
    "bad reward": "Give rewards that are finite numbers, of what is there; rewards.undeliverable in _report.json names"
    " the others.",
}
"""What helps against each reason why a trajectory is incomplete."""

_CURES: Final = {
    "ended on a failed call": Cure(
        "no call completed after the last that failed, as in an outage",
        'Sample it again, or train it with allow_incomplete=["ended on a failed call"]. If the call failed because its'
        " context was too long, report what the server said: it is not in art-otel's table (docs/troubleshooting.md).",
    ),
    "context exceeded": Cure(
        "its last call failed because the context was too long", "Choose context_exceeded=keep to train it."
    ),
    "status": Cure(
        "the rollout ended otherwise than the status option asks for", "Name its status in the status option, or any."
    ),
    "split": Cure(
        "the rollout is of another split; val, validation, test and eval are trained only where they are named",
        "Name its split in the option, or * for all.",
    ),
    "training step": Cure("the rollout is of another training step, or of none", "Choose its step, or leave it empty."),
    "no policy version": Cure(
        "a call has no policy version", "Set policy_version in art_otel.configure() or on the rollout."
    ),
    "another policy version": Cure(
        "another version than the option names sampled the rollout", "Name that version, or allow it by max_staleness."
    ),
    "policy version without a number": Cure(
        "staleness compares numbers, and a version has none that is surely one", f"{HOW_TO_WRITE}."
    ),
    "stale": Cure("the rollout is older than max_staleness allows", "Raise max_staleness, or sample anew."),
    "no reward": Cure(
        "nobody gave the reward that the credit option asks for",
        "Give one with art_otel.reward(…), choose another credit, or train without advantages.",
    ),
    "unusable reward": Cure(
        "the reward is NaN, infinite or not below 1e37", "Look where it is given, and give a finite number."
    ),
    "marked untrained": Cure(
        "a span at or above its call says that the policy does not learn from it",
        "Nothing is wrong: where it is the policy's, remove art_otel.untrained(…), or name its model in --models of the"
        " gateway.",
    ),
    "another model": Cure(
        "the models option does not choose the model that sampled it", "Name its model in the models option, or *."
    ),
    "another agent": Cure(
        "the agents option does not choose the agent that sampled it", "Name its agent in the agents option, or *."
    ),
    SEVERAL: Cure(
        "several models sampled it, and nobody chose which of them is trained",
        "Name the policy's model in the models option, or * for all of them (docs/how-to/train-only-the-policy.md).",
    ),
    "cut at max_tokens": Cure(
        "the request allowed too few tokens to end the answer",
        "Allow more tokens when you sample, or choose length=keep to train it.",
    ),
    "constrained sampling": Cure(
        "its request allowed only some tokens, as by a schema or allowed_token_ids, or moved them, as by logit_bias",
        "Choose constrained=keep to train it.",
    ),
    "images not carried": Cure(
        "the prompt of its call has images, audio or files, for which the token ids have no more than placeholders",
        "Choose images=placeholders to train it on these, or export to a trainer that gets the images, as"
        " trinity does.",
    ),
    "zero variance": Cure(
        "all known rewards of the group are equal, so nothing is learned from it", "Sample more rollouts of the task."
    ),
    "no token ids": Cure(
        "the server gave no token ids",
        "Record with ART_OTEL_REQUEST_TOKENS=1 and a server that has them, as vLLM and SGLang do, or give batches a"
        " tokenizer (docs/troubleshooting.md).",
    ),
    "nothing sampled": Cure("no call of the rollout has a completion", "Look at its calls: whether they failed."),
    "no tokens sampled": Cure("the completion is empty", "Nothing is wrong: there is nothing to train."),
    "longer than max_tokens": Cure("the sequence does not fit", "Raise max_tokens, or choose overflow=truncate."),
    "failed": Cure(
        "its call ended in an error", "Nothing is wrong: what it said stays as context for what came behind."
    ),
    "aborted": Cure(
        "the server stopped sampling before the policy did, as for an update of the weights",
        "Pause the server so that it waits for running requests (vLLM: mode=wait or keep), or sample again.",
    ),
    "ids doubtful": Cure(
        "the server listed fewer or more token ids than it counted, so they were left out",
        "Sample with a server that lists all ids, as vLLM does.",
    ),
    "stream broke": Cure(
        "its stream ended without a finish reason, so the completion may be cut",
        "Read streams to their end. If the app ends its completions by closing their streams, choose"
        " closed_streams=train.",
    ),
    "scrubbed": Cure("a secret was found in its call", "Keep secrets out of prompts (docs/how-to/scrub.md)."),
    "content doubtful": Cure(
        "what was recorded of its prompt or of itself may not be what was sent and sampled",
        "The gaps of its call say what; Raw shows them.",
    ),
    "contradicting recordings": Cure(
        "two recordings of its call say different things", "Keep one instrumentor a client."
    ),
}
"""Skip reasons but those of incomplete trajectories."""
