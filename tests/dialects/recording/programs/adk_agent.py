"""An agent of Google's ADK: `adk_agent.py litellm|gemini RECORDER`."""

import asyncio
import os
import sys

from recorder import recorded
from task import FUNCTIONS, QUESTIONS, SYSTEM

URL = os.environ["MODEL_URL"]


def model(mode: str):
    if mode == "gemini":
        os.environ["GOOGLE_GEMINI_BASE_URL"] = URL
        return "gemini-test"
    from google.adk.models.lite_llm import LiteLlm

    return LiteLlm(model="openai/fake-model", api_base=f"{URL}/v1", api_key="key")


async def run(mode: str) -> None:
    from google.adk.agents import LlmAgent
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    agent = LlmAgent(name="weather", model=model(mode), instruction=SYSTEM, tools=list(FUNCTIONS))
    runner = InMemoryRunner(agent=agent, app_name="weather")
    session = await runner.session_service.create_session(app_name="weather", user_id="user")
    for question in QUESTIONS:
        asked = types.Content(role="user", parts=[types.Part(text=question)])
        async for _ in runner.run_async(user_id="user", session_id=session.id, new_message=asked):
            pass


if __name__ == "__main__":
    mode, how = sys.argv[1:]
    with recorded(how):
        asyncio.run(run(mode))
