"""What an agent of google-genai sees: `gemini.py URL [vertex]` asks whole and as streams, and prints what came."""

import sys

from google import genai
from google.auth import credentials
from google.genai import errors, types


class NoCredentials(credentials.Credentials):
    def refresh(self, _request) -> None:
        self.token = "none"


def client_of(url: str, kind: str) -> genai.Client:
    options = types.HttpOptions(base_url=url, timeout=20_000)
    if kind != "vertex":
        return genai.Client(api_key="key", http_options=options)
    return genai.Client(vertexai=True, project="p", location="us", credentials=NoCredentials(), http_options=options)


def main(url: str, kind: str = "developer") -> None:
    client = client_of(url, kind)
    parameters = {"type": "object", "properties": {"where": {"type": "string"}}}
    look = types.FunctionDeclaration(name="look", description="Looks.", parameters_json_schema=parameters)
    config = types.GenerateContentConfig(
        system_instruction="Be brief.",
        tools=[types.Tool(function_declarations=[look])],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        temperature=0.5,
        max_output_tokens=100,
    )
    for is_stream in (False, True):
        contents = [types.Content(role="user", parts=[types.Part(text="Please look")])]
        for _ in range(2):
            asked = {"model": "gemini-test", "contents": contents, "config": config}
            if is_stream:
                chunks = list(client.models.generate_content_stream(**asked))
                parts = [part for chunk in chunks for one in chunk.candidates for part in one.content.parts or ()]
            else:
                parts = client.models.generate_content(**asked).candidates[0].content.parts
            print(*(part.model_dump_json(exclude_none=True) for part in parts), sep="\n")
            calls = [part.function_call for part in parts if part.function_call]
            results = [
                types.FunctionResponse(id=call.id, name=call.name, response={"weather": "sun"}) for call in calls
            ]
            contents = [
                *contents,
                types.Content(role="model", parts=parts),
                types.Content(role="user", parts=[types.Part(function_response=result) for result in results]),
            ]
    print(client.models.count_tokens(model="gemini-test", contents="Hi").total_tokens)
    try:
        client.models.generate_content(model="gemini-test", contents="fail")
    except errors.APIError as error:
        print(error)


main(*sys.argv[1:])
