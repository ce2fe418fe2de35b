"""A crew of one agent: `crewai_agent.py RECORDER`."""

import os
import sys

from recorder import recorded
from task import FUNCTIONS, QUESTIONS, SYSTEM

with recorded(sys.argv[1]):
    from crewai import LLM, Agent, Crew, Task
    from crewai.tools import tool

    llm = LLM(model="openai/fake-model", base_url=f"{os.environ['MODEL_URL']}/v1", api_key="key")
    tools = [tool(function.__name__)(function) for function in FUNCTIONS]
    agent = Agent(role="weather", goal=SYSTEM, backstory=SYSTEM, llm=llm, tools=tools)
    for question in QUESTIONS:
        Crew(agents=[agent], tasks=[Task(description=question, expected_output="an answer", agent=agent)]).kickoff()
