"""An agent of smolagents: `smolagents_agent.py RECORDER`."""

import os
import sys

from recorder import recorded
from task import QUESTION, get_weather

with recorded(sys.argv[1]):
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool

    get_weather.__doc__ += "\n\nArgs:\n    city: The city.\n"
    model = OpenAIServerModel("fake-model", api_base=f"{os.environ['MODEL_URL']}/v1", api_key="key")
    ToolCallingAgent(tools=[tool(get_weather)], model=model, max_steps=4).run(QUESTION)
