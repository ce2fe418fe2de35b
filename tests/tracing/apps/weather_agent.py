"""An agent as people write them: tools, several turns, asyncio and threads. It knows nothing of tracing.

Set OPENAI_BASE_URL and OPENAI_API_KEY. Prints one JSON line: what the model said last in each conversation.
"""

import asyncio
import json
import threading

from openai import AsyncOpenAI, OpenAI

MODEL = "Qwen/Qwen3-8B"
SYSTEM = {"role": "system", "content": "You tell the weather. Ask the tools, never guess."}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city today",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    },
    {
        "type": "function",
        "function": {
            "name": "get_time",
            "description": "The local time of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    },
]


def run_tool(call) -> dict:
    """What a tool says."""
    city = json.loads(call.function.arguments)["city"]
    content = f"It is sunny in {city}" if call.function.name == "get_weather" else f"It is noon in {city}"
    return {"role": "tool", "tool_call_id": call.id, "content": content}


def converse(client: OpenAI, questions: list[str]) -> str | None:
    """A conversation of several questions, each answered with the help of tools."""
    messages: list = [SYSTEM]
    answer = None
    for question in questions:
        messages.append({"role": "user", "content": question})
        while True:
            reply = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS, temperature=0.7)
            answer = reply.choices[0].message
            messages.append(answer.to_dict())
            if not answer.tool_calls:
                break
            messages += [run_tool(call) for call in answer.tool_calls]
    return answer and answer.content


async def converse_async(client: AsyncOpenAI, questions: list[str]) -> str | None:
    """The same without blocking; `answer.model_dump` as many people keep it."""
    messages: list = [SYSTEM]
    answer = None
    for question in questions:
        messages.append({"role": "user", "content": question})
        while True:
            reply = await client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS, seed=7)
            answer = reply.choices[0].message
            messages.append(answer.model_dump(exclude_none=True))
            if not answer.tool_calls:
                break
            messages += [run_tool(call) for call in answer.tool_calls]
    return answer and answer.content


async def several() -> list[str | None]:
    """Three conversations at once."""
    async with AsyncOpenAI() as client:
        cities = ("Lima", "Oslo", "Rome")
        return await asyncio.gather(*(converse_async(client, [f"And {city}? #calls=2", "Thanks"]) for city in cities))


def main() -> None:
    """One conversation here, two in threads, three in tasks."""
    with OpenAI() as client:
        said = {"here": converse(client, ["Weather in Paris?", "And in Berlin? #calls=2"])}

        def in_thread(city: str) -> None:
            said[city] = converse(client, [f"Weather in {city}?"])

        threads = [threading.Thread(target=in_thread, args=(city,)) for city in ("Bern", "Cairo")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(json.dumps({**said, "tasks": asyncio.run(several())}, sort_keys=True))


if __name__ == "__main__":
    main()
