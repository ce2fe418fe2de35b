"""An agent of Strands: `strands_agent.py RECORDER`."""

import os
import sys

from recorder import recorded
from task import FUNCTIONS, QUESTIONS, SYSTEM

with recorded(sys.argv[1]):
    from strands import Agent, tool
    from strands.models.openai import OpenAIModel

    model = OpenAIModel(
        client_args={"base_url": f"{os.environ['MODEL_URL']}/v1", "api_key": "key"}, model_id="fake-model"
    )
    tools = [tool(function) for function in FUNCTIONS]
    agent = Agent(model=model, system_prompt=SYSTEM, tools=tools, callback_handler=None)
    for question in QUESTIONS:
        agent(question)
