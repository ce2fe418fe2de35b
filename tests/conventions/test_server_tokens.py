"""Token ids and logprobs of every server come from where it writes them (docs/spec/recorders.md)."""

import pytest

from tests.conventions.builders import openinference
from tests.gaps import kinds, unread


def said(**fields):
    return {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "a b"}, **fields}


def logprobs(*entries):
    return {"content": [{"token": token, "logprob": logprob, **more} for token, logprob, more in entries]}


BODIES = {
    "vLLM": {"choices": [said(token_ids=[5, 7])], "prompt_token_ids": [1, 2]},
    "vLLM with tokens as ids": {
        "choices": [said(logprobs=logprobs(("token_id:5", -0.5, {}), ("token_id:7", -1.0, {})))],
        "prompt_token_ids": [1, 2],
    },
    "SGLang completions": {"choices": [{"index": 0, "text": "a b", "token_ids": [5, 7], "prompt_token_ids": [1, 2]}]},
    "SGLang chat": {"choices": [said(response_token_ids=[5, 7])], "prompt_token_ids": [1, 2]},
    "SGLang's extension": {"choices": [said()], "sglext": {"input_ids": [1, 2], "output_ids": [[5, 7]]}},
    "SGLang's meta info": {
        "choices": [said(meta_info={"output_token_logprobs": [[-0.5, 5, "a"], [-1.0, 7, " b"]]})],
        "sglext": {"input_ids": [1, 2]},
    },
    "llama.cpp": {
        "choices": [said(logprobs=logprobs(("a", -0.5, {"id": 5}), (" b", -1.0, {"id": 7})))],
        "prompt_token_ids": [1, 2],
    },
    "Fireworks": {
        "choices": [
            said(
                logprobs=logprobs(
                    ("a", -9.0, {"token_id": 5, "sampling_logprob": -0.5}),
                    (" b", -9.0, {"token_id": 7, "sampling_logprob": -1.0}),
                ),
                raw_output={"prompt_token_ids": [1, 2]},
            )
        ]
    },
    "Fireworks' raw output": {
        "choices": [said(raw_output={"prompt_token_ids": [1, 2], "completion_token_ids": [5, 7]})]
    },
    "Together": {
        "choices": [said(logprobs={"tokens": ["a", " b"], "token_logprobs": [-0.5, -1.0], "token_ids": [5.0, 7.0]})],
        "prompt_token_ids": [1, 2],
    },
    "LiteLLM before vLLM": {
        "choices": [said(provider_specific_fields={"token_ids": [5, 7]})],
        "prompt_token_ids": [1, 2],
    },
}

WITH_LOGPROBS = {"vLLM with tokens as ids", "SGLang's meta info", "llama.cpp", "Fireworks", "Together"}


@pytest.mark.parametrize("server", BODIES)
def test_the_ids_of_a_server(server):
    found = openinference({"model": "m", "messages": []}, {"id": "r", **BODIES[server]})
    (choice,) = found.choices
    assert choice.token_ids.tolist() == [5, 7]
    assert found.prompt_token_ids.tolist() == [1, 2]
    assert (choice.logprobs and choice.logprobs.tolist()) == ([-0.5, -1.0] if server in WITH_LOGPROBS else None)
    assert not unread(found)


@pytest.mark.parametrize(
    "choice",
    [
        said(logprobs={"tokens": ["a"], "token_logprobs": [-0.5], "token_ids": [5.5]}),
        said(meta_info={"output_token_logprobs": [[-0.5, "5", "a"]]}),
    ],
)
def test_ids_that_are_no_whole_numbers_are_unknown_and_said_to_be_cut(choice):
    found = openinference({"model": "m", "messages": []}, {"choices": [choice]})
    assert found.choices[0].token_ids is None
    assert unread(found) == ("output.value",)


def test_ids_of_some_tokens_are_no_ids():
    content = logprobs(("a", -0.5, {"id": 5}), (" b", -1.0, {}))
    found = openinference({"model": "m", "messages": []}, {"choices": [said(logprobs=content)]})
    assert found.choices[0].token_ids is None
    assert found.choices[0].logprobs.tolist() == [-0.5, -1.0]


def test_ids_of_two_choices_in_sglangs_extension():
    body = {"choices": [said(), said(index=1)], "sglext": {"output_ids": [[5], [6, 7]]}}
    found = openinference({"model": "m", "messages": []}, body)
    assert [choice.token_ids.tolist() for choice in found.choices] == [[5], [6, 7]]


def test_reasoning_may_be_left_out_of_the_count():
    message = {"role": "assistant", "content": "a", "reasoning_content": "b"}
    call = openinference(
        {"model": "m"}, {"choices": [said(token_ids=[5, 7], message=message)], "usage": {"completion_tokens": 1}}
    )
    assert "miscounted" not in kinds(call)
    assert call.choices[0].token_ids.tolist() == [5, 7]


@pytest.mark.parametrize(
    ("choices", "parameters", "counted", "gaps"),
    [
        ([[5, 7]], {}, 2, ()),
        ([[5, 7]], {}, 3, ("miscounted",)),
        ([[5, 7, 8]], {}, 2, ("miscounted",)),
        ([[5, 7], [8]], {"n": 2}, 3, ()),
        ([[5, 7], [8]], {"n": 2}, 4, ("miscounted",)),
        ([[5, 7], None], {"n": 2}, 4, ()),
        ([[5, 7]], {"best_of": 2}, 4, ()),
        ([[5, 7]], {}, None, ()),
    ],
)
def test_ids_are_as_many_as_the_server_counted(choices, parameters, counted, gaps):
    """A choice without ids, or one that was not returned, may be what was counted beside them."""
    told = [said(**({} if ids is None else {"token_ids": ids})) for ids in choices]
    body = {"choices": [{**one, "index": index} for index, one in enumerate(told)]}
    usage = {} if counted is None else {"usage": {"completion_tokens": counted}}
    request = {"model": "m", "messages": [{"role": "user", "content": "q"}], **parameters}
    call = openinference(request, {**body, **usage})
    assert [kind for kind in kinds(call) if kind == "miscounted"] == list(gaps)
    assert [choice.token_ids and choice.token_ids.tolist() for choice in call.choices] == (
        [None] * len(choices) if gaps else choices
    )
    assert [choice.message.content for choice in call.choices] == ["a b"] * len(choices)
