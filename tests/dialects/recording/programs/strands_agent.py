"""An agent of Strands: `strands_agent.py RECORDER`."""

import os
import sys

from recorder import recorded
from task import QUESTION, SYSTEM, get_weather

with recorded(sys.argv[1]):
    from strands import Agent, tool
    from strands.models.openai import OpenAIModel

    model = OpenAIModel(
        client_args={"base_url": f"{os.environ['MODEL_URL']}/v1", "api_key": "key"}, model_id="fake-model"
    )
    Agent(model=model, system_prompt=SYSTEM, tools=[tool(get_weather)], callback_handler=None)(QUESTION)
