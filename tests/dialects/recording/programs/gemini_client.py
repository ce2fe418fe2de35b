"""An agent of google-genai: `gemini_client.py sync|stream|thinking|thinking_stream RECORDER`."""

import os
import sys

from recorder import recorded
from task import QUESTIONS, SYSTEM, TOOLS, result_of


def run(client, mode: str) -> None:
    from google.genai import types

    declarations = [
        types.FunctionDeclaration(
            name=tool["name"], description=tool["description"], parameters_json_schema=tool["parameters"]
        )
        for tool in TOOLS
    ]
    config = types.GenerateContentConfig(
        system_instruction=SYSTEM,
        tools=[types.Tool(function_declarations=declarations)],
        automatic_function_calling={"disable": True},
        temperature=0.5,
        max_output_tokens=100,
        thinking_config=types.ThinkingConfig(include_thoughts=True) if mode.startswith("thinking") else None,
    )
    contents = []
    for question in QUESTIONS:
        contents = [*contents, types.Content(role="user", parts=[types.Part(text=question)])]
        while True:
            asked = {"model": "gemini-test", "contents": contents, "config": config}
            if mode.endswith("stream"):
                chunks = list(client.models.generate_content_stream(**asked))
                parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
            else:
                parts = client.models.generate_content(**asked).candidates[0].content.parts
            contents = [*contents, types.Content(role="model", parts=[part for part in parts if not part.thought])]
            calls = [part.function_call for part in parts if part.function_call]
            if not calls:
                break
            results = [
                types.FunctionResponse(id=call.id, name=call.name, response={"result": result_of(call.name, call.args)})
                for call in calls
            ]
            answered = [types.Part(function_response=result) for result in results]
            contents = [*contents, types.Content(role="user", parts=answered)]


if __name__ == "__main__":
    mode, how = sys.argv[1:]
    with recorded(how) as wrapped:
        from google import genai

        run(wrapped(genai.Client(api_key="key", http_options={"base_url": os.environ["MODEL_URL"]})), mode)
