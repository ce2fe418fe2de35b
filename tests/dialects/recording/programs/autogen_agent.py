"""An agent of AutoGen: `autogen_agent.py RECORDER`."""

import asyncio
import os
import sys

from recorder import recorded
from task import FUNCTIONS, QUESTIONS, SYSTEM


async def run() -> None:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    knows = {"function_calling": True, "vision": False, "json_output": False, "family": "unknown"}
    client = OpenAIChatCompletionClient(
        model="fake-model",
        base_url=f"{os.environ['MODEL_URL']}/v1",
        api_key="key",
        model_info=knows | {"structured_output": False},
    )
    options = {"system_message": SYSTEM, "reflect_on_tool_use": True, "max_tool_iterations": 5}
    agent = AssistantAgent("weather", client, tools=list(FUNCTIONS), **options)
    for question in QUESTIONS:
        await agent.run(task=question)


if __name__ == "__main__":
    with recorded(sys.argv[1]):
        asyncio.run(run())
