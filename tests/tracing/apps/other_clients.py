"""An agent of each other client: `python other_clients.py anthropic|google|litellm|bedrock URL`."""

import sys

SYSTEM, QUESTION, RESULT = "Be brief.", "Weather in Paris?", "sunny"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"name": "get_weather", "description": "The weather of a city."}


def run_anthropic(url: str) -> None:
    """Messages."""
    from anthropic import Anthropic  # noqa: PLC0415 # one client a process

    client = Anthropic(base_url=url, api_key="key")
    messages = [{"role": "user", "content": QUESTION}]
    tools = [TOOL | {"input_schema": SCHEMA}]

    def ask():
        return client.messages.create(model="m", max_tokens=99, system=SYSTEM, tools=tools, messages=messages)

    said = [block.model_dump(include={"type", "text", "id", "name", "input"}) for block in ask().content]
    messages.append({"role": "assistant", "content": said})
    result = {"type": "tool_result", "tool_use_id": said[-1]["id"], "content": RESULT}
    messages.append({"role": "user", "content": [result]})
    ask()


def run_google(url: str) -> None:
    """Contents."""
    from google import genai  # noqa: PLC0415 # one client a process
    from google.genai import types  # noqa: PLC0415 # as above

    client = genai.Client(api_key="key", http_options={"base_url": url})
    tool = types.Tool(function_declarations=[types.FunctionDeclaration(**TOOL, parameters_json_schema=SCHEMA)])
    config = types.GenerateContentConfig(
        system_instruction=SYSTEM, tools=[tool], automatic_function_calling={"disable": True}
    )
    contents = [types.Content(role="user", parts=[types.Part(text=QUESTION)])]

    def ask():
        return client.models.generate_content(model="m", contents=contents, config=config).candidates[0].content

    contents.append(ask())
    call = contents[-1].parts[-1].function_call
    response = types.FunctionResponse(id=call.id, name=call.name, response={"result": RESULT})
    contents.append(types.Content(role="user", parts=[types.Part(function_response=response)]))
    ask()


def run_litellm(url: str) -> None:
    """A model of vLLM."""
    from litellm import completion  # noqa: PLC0415 # one client a process

    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    tools = [{"type": "function", "function": TOOL | {"parameters": SCHEMA}}]

    def ask():
        return completion(model="hosted_vllm/m", api_base=f"{url}/v1", api_key="key", messages=messages, tools=tools)

    said = ask().choices[0].message.model_dump(include={"role", "content", "tool_calls"})
    messages.append(said)
    messages.append({"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": RESULT})
    ask()


def run_bedrock(url: str) -> None:
    """Converse."""
    import boto3  # noqa: PLC0415 # one client a process

    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
    client = boto3.client("bedrock-runtime", endpoint_url=url, region_name="us-east-1", **keys)
    messages = [{"role": "user", "content": [{"text": QUESTION}]}]
    tools = {"tools": [{"toolSpec": TOOL | {"inputSchema": {"json": SCHEMA}}}]}

    def ask():
        asked = {"system": [{"text": SYSTEM}], "messages": messages, "toolConfig": tools}
        return client.converse(modelId="anthropic.claude-m", **asked)["output"]["message"]

    said = ask()
    result = {"toolUseId": said["content"][-1]["toolUse"]["toolUseId"], "content": [{"text": RESULT}]}
    messages.extend([said, {"role": "user", "content": [{"toolResult": result}]}])
    ask()


if __name__ == "__main__":
    globals()[f"run_{sys.argv[1]}"](sys.argv[2])
