"""An agent of smolagents: `smolagents_agent.py sync|stream RECORDER`."""

import os
import sys

from recorder import recorded
from task import FUNCTIONS, QUESTIONS, SYSTEM

mode, how = sys.argv[1:]
with recorded(how):
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool

    for function, parameters in FUNCTIONS.items():
        said = "".join(f"    {name}: What is meant.\n" for name in parameters["properties"])
        function.__doc__ += f"\n\nArgs:\n{said}" if said else ""
    model = OpenAIServerModel("fake-model", api_base=f"{os.environ['MODEL_URL']}/v1", api_key="key")
    tools = [tool(function) for function in FUNCTIONS]
    options = {"instructions": SYSTEM, "max_steps": 5, "stream_outputs": mode == "stream"}
    agent = ToolCallingAgent(tools=tools, model=model, **options)
    for question in QUESTIONS:
        agent.run(question, reset=question == QUESTIONS[0])
