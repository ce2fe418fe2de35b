"""An agent of LlamaIndex: `llama_agent.py RECORDER`."""

import asyncio
import os
import sys

from recorder import recorded
from task import FUNCTIONS, QUESTIONS, SYSTEM


async def run() -> None:
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.workflow import Context
    from llama_index.llms.openai_like import OpenAILike

    knows = {"is_chat_model": True, "is_function_calling_model": True}
    llm = OpenAILike(model="fake-model", api_base=f"{os.environ['MODEL_URL']}/v1", api_key="key", **knows)
    agent = FunctionAgent(tools=list(FUNCTIONS), llm=llm, system_prompt=SYSTEM)
    context = Context(agent)
    for question in QUESTIONS:
        await agent.run(question, ctx=context)


if __name__ == "__main__":
    with recorded(sys.argv[1]):
        asyncio.run(run())
