"""Agents of Python frameworks, each with a tool: `python frameworks.py NAME BASE_URL TEXT`; prints the last answer.

They know nothing but a base URL, and trace nothing.
"""

# ruff: noqa: PLC0415 # only the framework that is asked for is loaded

import asyncio
import sys

SYSTEM = "You are a weather agent."


def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: The city.
    """
    return f"sunny in {city}"


async def by_openai_agents(url: str, text: str, *, responses: bool) -> str:
    """OpenAI's Agents SDK: its Responses model streamed, and its Chat Completions model."""
    import agents
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=url, api_key="none")
    kind = agents.OpenAIResponsesModel if responses else agents.OpenAIChatCompletionsModel
    model = kind(model="m", openai_client=client)
    agent = agents.Agent(name="weather", instructions=SYSTEM, model=model, tools=[agents.function_tool(get_weather)])
    if not responses:
        return (await agents.Runner.run(agent, text)).final_output
    running = agents.Runner.run_streamed(agent, text)
    async for _ in running.stream_events():
        pass
    return running.final_output


async def by_langgraph(url: str, text: str, *, responses: bool) -> str:
    """LangChain's agent, which is a graph of LangGraph: Chat Completions streamed, and Responses."""
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="m", base_url=url, api_key="none", use_responses_api=responses)
    agent = create_agent(model, tools=[get_weather], system_prompt=SYSTEM)
    asked = {"messages": [{"role": "user", "content": text}]}
    if responses:
        return (await agent.ainvoke(asked))["messages"][-1].text
    pieces = [piece async for piece, _ in agent.astream(asked, stream_mode="messages")]
    return "".join(piece.text for piece in pieces if piece.type == "AIMessageChunk")


AGENTS = {
    "openai-agents": (by_openai_agents, True),
    "openai-agents-chat": (by_openai_agents, False),
    "langgraph": (by_langgraph, False),
    "langgraph-responses": (by_langgraph, True),
}

if __name__ == "__main__":
    _, name, base_url, question = sys.argv
    run, by_responses = AGENTS[name]
    print(asyncio.run(run(base_url, question, responses=by_responses)))
