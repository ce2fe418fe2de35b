"""An agent of Pydantic AI: `pydantic_agent.py chat|responses|anthropic attributes|logs|VERSION|default`.

A number is the version of its conventions.
"""

import os
import sys

from recorder import recorded
from task import FUNCTIONS, QUESTIONS, SYSTEM

mode, events = sys.argv[1:]
with recorded("own bare"):
    from pydantic_ai import Agent
    from pydantic_ai.models.instrumented import InstrumentationSettings

    options = {"version": int(events)} if events.isdigit() else {"event_mode": events} if events != "default" else {}
    Agent.instrument_all(InstrumentationSettings(**options))
    if mode == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        provider = AnthropicProvider(base_url=os.environ["MODEL_URL"], api_key="key")
        model = AnthropicModel("claude-test-1", provider=provider)
    else:
        from pydantic_ai.models import openai as models
        from pydantic_ai.providers.openai import OpenAIProvider

        provider = OpenAIProvider(base_url=f"{os.environ['MODEL_URL']}/v1", api_key="key")
        chat = "OpenAIChatModel" if hasattr(models, "OpenAIChatModel") else "OpenAIModel"  # its name before 1.0
        model = getattr(models, chat if mode == "chat" else "OpenAIResponsesModel")("fake-model", provider=provider)
    agent = Agent(model, system_prompt=SYSTEM, tools=list(FUNCTIONS))
    messages = []
    for question in QUESTIONS:
        messages = agent.run_sync(question, message_history=messages).all_messages()
