"""Cures: what each reason of an untrained rollout or completion means, and what helps against it.

The cures of incomplete trajectories are in `trajectories/wholeness.py`. Reports of batches and exports, the command
line and the viewer's page all use these texts. Invariant: `helps` says what to do, not what happened.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from art_otel.data.choosing import SEVERAL
from art_otel.data.model_names import HOW_TO_WRITE
from art_otel.trajectories import Cure, cure_of_gap

_INCOMPLETE: Final = "incomplete: "


def cure_of(reason: str) -> Cure:
    """The cure of a skip reason; a general one for reasons of the user's own options or exporter."""
    gap = reason.removeprefix(_INCOMPLETE)
    return cure_of_gap(gap) if gap != reason else _CURES.get(reason, _OF_USERS)


def cure_of_no_reward(names: Mapping[str, int]) -> Cure:
    """The cure of `no reward`; `names` counts rollouts without a final reward by the names of their rewards."""
    cure = _CURES["no reward"]
    if not names:
        return cure
    most = max(names, key=lambda each: names[each])
    several = most.split(", ")
    credit = f"weighted({', '.join(f'{name}=1' for name in several)})" if several[1:] else f"outcome_reward({most})"
    return cure._replace(
        helps=f"{sum(names.values()):,} of them have rewards, such as {most}, and none is the final one: combine them "
        f"with credit={credit}, or give one reward without a name."
    )


def helps_against(reasons: Iterable[str]) -> dict[str, str]:
    """What to do about each reason, by reason; without reasons that only an exporter knows.

    A reason may have a prefix with the kind of item: `completions: another model`.
    """
    helps: dict[str, str] = {}
    for reason in reasons:
        named = reason if reason.startswith(_INCOMPLETE) else reason.rpartition(": ")[2]
        if (cure := cure_of(named)) is not _OF_USERS:
            helps[named] = cure.helps
    return helps


def show_reason(reason: str, count: int, cure: Cure) -> dict[str, Any]:
    """The reason, its count and its cure as a row of a table."""
    return {"reason": reason, "count": count, **cure._asdict()}


_OF_USERS: Final = Cure("a reason of your own options", "This reason comes from one of your own options.")

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
        "the rollout ended with another status than the option asks for",
        "Name its status in the status option, or use any.",
    ),
    "split": Cure(
        "the rollout is of another split; val, validation, test and eval are trained only where they are named",
        "Name its split in the option, or * for all.",
    ),
    "training step": Cure(
        "the rollout belongs to another training step, or to none", "Choose its step, or leave the option empty."
    ),
    "no policy version": Cure(
        "a call has no policy version", "Set policy_version in art_otel.configure() or on the rollout."
    ),
    "another policy version": Cure(
        "the rollout was not sampled by the version that the option names",
        "Name that version, or allow it by max_staleness.",
    ),
    "policy version without a number": Cure(
        "staleness compares numbers, and this version contains no clear number", f"{HOW_TO_WRITE}."
    ),
    "stale": Cure("the rollout is older than max_staleness allows", "Raise max_staleness, or sample anew."),
    "no reward": Cure(
        "the reward that the credit option asks for was not given",
        "Give one with art_otel.reward(…), choose another credit, or train without advantages.",
    ),
    "unusable reward": Cure(
        "the reward is NaN, infinite or not below 1e37", "Find where it is given, and give a finite number."
    ),
    "marked untrained": Cure(
        "a span at or above its call says that the policy does not learn from it",
        "Nothing is wrong. If the policy did sample it, remove art_otel.untrained(…), or name its model in --models "
        "of the gateway.",
    ),
    "another model": Cure(
        "the models option does not choose the model that sampled it", "Name its model in the models option, or *."
    ),
    "another agent": Cure(
        "the agents option does not choose the agent that sampled it", "Name its agent in the agents option, or *."
    ),
    SEVERAL: Cure(
        "several models sampled it, and no option chooses which one is trained",
        "Name the policy's model in the models option, or * for all of them (docs/how-to/train-only-the-policy.md).",
    ),
    "cut at max_tokens": Cure(
        "the request allowed too few tokens to end the answer",
        "Allow more tokens when you sample, or choose length=keep to train it.",
    ),
    "cut by a filter": Cure(
        "a content filter ended the answer before the policy did",
        "Sample it again, or choose length=keep to train it.",
    ),
    "constrained sampling": Cure(
        "its request restricted the tokens, for example by a schema or allowed_token_ids, or changed their"
        " probabilities, for example by logit_bias",
        "Choose constrained=keep to train it.",
    ),
    "images not carried": Cure(
        "the prompt of its call has images, audio or files, for which the token ids only have placeholders",
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
    "messages unknown": Cure(
        "the prompt was not recorded, so a tokenizer cannot make its ids",
        "Switch content capture on in the instrumentor (docs/how-to/capture-content.md), or ask the server for ids.",
    ),
    "not a chat": Cure(
        "its call completes a text without a chat template", "Ask the server for ids, with ART_OTEL_REQUEST_TOKENS=1."
    ),
    "continues a message": Cure(
        "its call continues the last message, and no chat template renders this as the server did",
        "Ask the server for ids, with ART_OTEL_REQUEST_TOKENS=1.",
    ),
    "not text alone": Cure(
        "its messages have images or other content, for which a chat template makes no ids here",
        "Ask the server for ids, with ART_OTEL_REQUEST_TOKENS=1.",
    ),
    "rejected by the chat template": Cure(
        "the chat template raised an error for its messages, for example because of a role or an order that it does "
        "not know",
        "Use the policy's own tokenizer; its template accepts what the policy was asked.",
    ),
    "prompt rendered otherwise": Cure(
        "the chat template writes the prompt differently when an answer follows it",
        "Use a tokenizer whose template never changes a prompt when something follows it, or ask the server for ids.",
    ),
    "not rendered whole": Cure(
        "the chat template leaves out something of the answer, such as its reasoning or its tool calls",
        "Use a tokenizer whose template writes everything that the policy samples, or ask the server for ids.",
    ),
    "nothing sampled": Cure("no call of the rollout has a completion", "Check whether its calls failed."),
    "no tokens sampled": Cure("the completion is empty", "Nothing is wrong: there is nothing to train."),
    "longer than max_tokens": Cure("the sequence does not fit", "Raise max_tokens, or choose overflow=truncate."),
    "failed": Cure("its call ended in an error", "Nothing is wrong: its text stays as context for what follows."),
    "aborted": Cure(
        "the server stopped sampling before the policy did, for example to update the weights",
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
    "content uncertain": Cure(
        "the recorded prompt or answer may differ from what was sent and sampled",
        "The gaps of its call say what is missing; Raw shows them.",
    ),
    "contradicting recordings": Cure(
        "two recordings of its call contradict each other", "Use one instrumentor per client."
    ),
}
"""The cures of all skip reasons, except those of incomplete trajectories."""
