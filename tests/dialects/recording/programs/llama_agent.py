"""An agent of LlamaIndex: `llama_agent.py RECORDER`."""

import asyncio
import os
import sys

from recorder import recorded
from task import QUESTION, SYSTEM, get_weather


async def run() -> None:
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.llms.openai_like import OpenAILike

    knows = {"is_chat_model": True, "is_function_calling_model": True}
    llm = OpenAILike(model="fake-model", api_base=f"{os.environ['MODEL_URL']}/v1", api_key="key", **knows)
    await FunctionAgent(tools=[get_weather], llm=llm, system_prompt=SYSTEM).run(QUESTION)


if __name__ == "__main__":
    with recorded(sys.argv[1]):
        asyncio.run(run())
