"""An agent of agno: `agno_agent.py chat|stream|responses RECORDER`."""

import os
import sys

from recorder import recorded
from task import FUNCTIONS, QUESTIONS, SYSTEM

mode, how = sys.argv[1:]
with recorded(how):
    from agno.agent import Agent
    from agno.db.in_memory import InMemoryDb
    from agno.models.openai import OpenAIChat, OpenAIResponses

    kind = OpenAIResponses if mode == "responses" else OpenAIChat
    model = kind(id="fake-model", base_url=f"{os.environ['MODEL_URL']}/v1", api_key="key")
    history = {"add_history_to_context": True, "db": InMemoryDb(), "session_id": "session", "telemetry": False}
    agent = Agent(model=model, tools=list(FUNCTIONS), instructions=SYSTEM, **history)
    for question in QUESTIONS:
        if mode == "stream":
            for _ in agent.run(question, stream=True):
                pass
        else:
            agent.run(question)
