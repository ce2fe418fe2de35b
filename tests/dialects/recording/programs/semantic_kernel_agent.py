"""An agent of Semantic Kernel: `semantic_kernel_agent.py RECORDER`."""

import asyncio
import logging
import os
import sys

from recorder import recorded
from task import FUNCTIONS, QUESTIONS, SYSTEM

os.environ["SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE"] = "true"


async def run() -> None:
    from openai import AsyncOpenAI
    from opentelemetry.sdk._logs import LoggingHandler
    from semantic_kernel.agents import ChatCompletionAgent, ChatHistoryAgentThread
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
    from semantic_kernel.functions import kernel_function

    logging.getLogger().addHandler(LoggingHandler())
    logging.getLogger("semantic_kernel").setLevel(logging.INFO)
    client = AsyncOpenAI(base_url=f"{os.environ['MODEL_URL']}/v1", api_key="key")
    service = OpenAIChatCompletion(ai_model_id="fake-model", async_client=client)
    plugin = type("Tools", (), {function.__name__: staticmethod(kernel_function(function)) for function in FUNCTIONS})
    agent = ChatCompletionAgent(service=service, name="tester", instructions=SYSTEM, plugins=[plugin()])
    thread = ChatHistoryAgentThread()
    for question in QUESTIONS:
        thread = (await agent.get_response(messages=question, thread=thread)).thread


with recorded(sys.argv[1]):
    asyncio.run(run())
