"""An agent of Pydantic AI: `pydantic_agent.py chat|responses attributes|logs`."""

import os
import sys

from recorder import recorded
from task import QUESTION, SYSTEM, get_weather

mode, events = sys.argv[1:]
with recorded("own bare"):
    from pydantic_ai import Agent
    from pydantic_ai.agent import InstrumentationSettings
    from pydantic_ai.models import openai as models
    from pydantic_ai.providers.openai import OpenAIProvider

    Agent.instrument_all(InstrumentationSettings(event_mode=events))
    provider = OpenAIProvider(base_url=f"{os.environ['MODEL_URL']}/v1", api_key="key")
    chat = "OpenAIChatModel" if hasattr(models, "OpenAIChatModel") else "OpenAIModel"  # its name before 1.0
    kind = getattr(models, chat if mode == "chat" else "OpenAIResponsesModel")
    Agent(kind("fake-model", provider=provider), system_prompt=SYSTEM, tools=[get_weather]).run_sync(QUESTION)
