"""Runs in verifiers' environment: builds the graph of a trace from calls, and prints what its branches train.

python build_with_verifiers.py CALLS TRACES: a JSON list of rollouts, each a list of calls with the messages of the
prompt, its ids, and the answer with its ids and logprobs. TRACES is written as verifiers writes traces.jsonl.
"""

import json
import sys
from pathlib import Path

import verifiers.v1 as vf
from pydantic import TypeAdapter
from verifiers.v1.graph import prepare_turn
from verifiers.v1.types import AssistantMessage, Messages, Response, TurnTokens

PROMPT = TypeAdapter(Messages)


def trace_of(calls: list[dict]) -> vf.Trace:
    trace = vf.Trace.model_construct(nodes=[], calls=[])
    for number, call in enumerate(calls):
        tokens = TurnTokens(
            prompt_ids=call["prompt_ids"],
            completion_ids=call["completion_ids"],
            completion_logprobs=call["logprobs"],
        )
        answer = AssistantMessage.model_validate(call["answer"])
        response = Response(
            id=str(number), created=0, model="policy", message=answer, finish_reason="stop", tokens=tokens
        )
        prepare_turn(trace, PROMPT.validate_python(call["prompt"])).commit(response)
    return trace


def branches_of(trace: vf.Trace) -> list[dict]:
    """The branches of the trace; a message sampled once is trained in the first branch that has it.

    Streams of tokens are lists up to 0.4.0, and numpy arrays after that.
    """
    trained: set[int] = set()
    found = []
    for branch in trace.branches:
        mask: list[bool] = []
        for node in branch.nodes:
            mask += [False] * len(node.mask) if id(node) in trained else [bool(trains) for trains in node.mask]
            if any(node.mask):
                trained.add(id(node))
        # Under the mask alone: those of a completion that is context here are there too, and nobody reads them.
        logprobs = [float(logprob) if trains else 0.0 for logprob, trains in zip(branch.logprobs, mask, strict=True)]
        found.append({"token_ids": list(map(int, branch.token_ids)), "mask": mask, "logprobs": logprobs})
    return found


traces = [trace_of(calls) for calls in json.loads(Path(sys.argv[1]).read_text())]
written = [trace.model_dump(mode="json", exclude_none=True) for trace in traces]
Path(sys.argv[2]).write_text("".join(json.dumps(one) + "\n" for one in written))
print(json.dumps([branches_of(trace) for trace in traces]))
