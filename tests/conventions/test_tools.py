"""Tool definitions: one form, and every call has its own."""

import json

import pytest

from tests.conventions.builders import genai, openinference

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def of_genai():
    return genai(attributes={"gen_ai.tool.definitions": json.dumps([TOOL])})


def of_openinference():
    return openinference({"model": "m", "messages": [], "tools": [TOOL]})


@pytest.mark.parametrize("make", [of_genai, of_openinference])
def test_a_change_of_one_calls_tools_changes_no_other_call(make):
    first, second = make(), make()
    assert first.tools == second.tools == (TOOL,)
    first.tools[0]["function"]["parameters"]["properties"]["name"] = {}
    first.tools[0]["function"]["name"] = "changed"
    assert second.tools == make().tools == (TOOL,)
