"""An agent of LangChain: `langchain_agent.py openai|stream|responses|rstream|anthropic RECORDER`."""

import os
import sys

from recorder import recorded
from task import FUNCTIONS, QUESTIONS, SYSTEM

URL = os.environ["MODEL_URL"]


def model(mode: str):
    if mode == "anthropic":
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(model="claude-test-1", base_url=URL, api_key="key", max_tokens=300)
    from langchain_openai import ChatOpenAI

    options = {"use_responses_api": mode in ("responses", "rstream"), "streaming": mode in ("stream", "rstream")}
    return ChatOpenAI(model="fake-model", base_url=f"{URL}/v1", api_key="key", **options)


if __name__ == "__main__":
    mode, how = sys.argv[1:]
    with recorded(how):
        from langchain.agents import create_agent

        callbacks = []
        if how.startswith("langfuse"):
            from with_langfuse import callbacks as langfuse_callbacks

            callbacks = langfuse_callbacks()
        agent = create_agent(model(mode), tools=list(FUNCTIONS), system_prompt=SYSTEM)
        messages = []
        for question in QUESTIONS:
            asked = {"messages": [*messages, {"role": "user", "content": question}]}
            messages = agent.invoke(asked, config={"callbacks": callbacks})["messages"]
