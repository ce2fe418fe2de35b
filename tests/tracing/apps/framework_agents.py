"""An agent of each framework, with a tool: `python framework_agents.py openai-agents|langgraph|smolagents URL`."""

# ruff: noqa: PLC0415 # only the framework that is asked for is loaded

import asyncio
import sys

SYSTEM = "You are a weather agent."
QUESTION = "Weather in Paris and Tokyo?"


def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: The city.
    """
    return {"Paris": "sunny", "Tokyo": "rainy"}[city]


def by_openai_agents(url: str) -> None:
    """OpenAI's Agents SDK, by its Chat Completions model."""
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
    from openai import AsyncOpenAI

    model = OpenAIChatCompletionsModel(model="fake-model", openai_client=AsyncOpenAI(base_url=url, api_key="key"))
    agent = Agent(name="weather", instructions=SYSTEM, model=model, tools=[function_tool(get_weather)])
    asyncio.run(Runner.run(agent, QUESTION))


def by_langgraph(url: str) -> None:
    """LangChain's agent, which is a graph of LangGraph."""
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="fake-model", base_url=url, api_key="key")
    agent = create_agent(model, tools=[get_weather], system_prompt=SYSTEM)
    agent.invoke({"messages": [{"role": "user", "content": QUESTION}]})


def by_smolagents(url: str) -> None:
    """An agent of smolagents that calls tools."""
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool

    model = OpenAIServerModel("fake-model", api_base=url, api_key="key")
    ToolCallingAgent(tools=[tool(get_weather)], model=model, max_steps=4).run(QUESTION)


if __name__ == "__main__":
    {"openai-agents": by_openai_agents, "langgraph": by_langgraph, "smolagents": by_smolagents}[sys.argv[1]](
        f"{sys.argv[2]}/v1"
    )
