"""An agent of Microsoft's Agent Framework: `agent_framework_agent.py chat|stream|responses|rstream RECORDER`."""

import asyncio
import os
import sys

from recorder import recorded
from task import FUNCTIONS, QUESTIONS, SYSTEM

mode, how = sys.argv[1:]


async def run() -> None:
    from agent_framework import Agent
    from agent_framework.observability import enable_instrumentation
    from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient

    enable_instrumentation(enable_sensitive_data=True)
    kind = OpenAIChatCompletionClient if mode in ("chat", "stream") else OpenAIChatClient
    client = kind(model="fake-model", api_key="key", base_url=f"{os.environ['MODEL_URL']}/v1")
    agent = Agent(client, instructions=SYSTEM, tools=list(FUNCTIONS), name="tester")
    session = agent.create_session()
    for question in QUESTIONS:
        if mode in ("stream", "rstream"):
            async for _ in agent.run(question, stream=True, session=session):
                pass
        else:
            await agent.run(question, session=session)


with recorded(how):
    asyncio.run(run())
