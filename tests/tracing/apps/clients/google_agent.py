"""Contents of google-genai."""

from google import genai
from google.genai import types

from tests.tracing.apps.clients.task import QUESTION, SCHEMA, SYSTEM, TOOL, get_weather


def parts_of(*responses):
    return [part for response in responses for part in response.candidates[0].content.parts]


class Agent:
    """Its ways: whole and stream, each also async, and a stream that is left."""

    def __init__(self, url: str) -> None:
        self.client = genai.Client(api_key="key", http_options={"base_url": url})
        tool = types.Tool(function_declarations=[types.FunctionDeclaration(**TOOL, parameters_json_schema=SCHEMA)])
        config = types.GenerateContentConfig(
            system_instruction=SYSTEM, tools=[tool], automatic_function_calling={"disable": True}
        )
        self.contents = [types.Content(role="user", parts=[types.Part(text=QUESTION)])]
        self.asked = {"model": "m", "contents": self.contents, "config": config}

    def whole(self):
        return parts_of(self.client.models.generate_content(**self.asked))

    def stream(self):
        return parts_of(*self.client.models.generate_content_stream(**self.asked))

    async def async_whole(self):
        return parts_of(await self.client.aio.models.generate_content(**self.asked))

    async def async_stream(self):
        return parts_of(*[chunk async for chunk in await self.client.aio.models.generate_content_stream(**self.asked)])

    def abandoned(self):
        stream = self.client.models.generate_content_stream(**self.asked)
        return parts_of(*(chunk for _, chunk in zip(range(2), stream, strict=False)))

    def goes_on(self, parts: list[types.Part]) -> bool:
        """Answer the calls; False where there is none."""
        self.contents.append(types.Content(role="model", parts=parts))
        calls = [part.function_call for part in parts if part.function_call]
        results = [
            types.FunctionResponse(id=call.id, name=call.name, response={"weather": get_weather(**call.args)})
            for call in calls
        ]
        answers = [types.Part(function_response=result) for result in results]
        self.contents.append(types.Content(role="user", parts=answers))
        return bool(calls)
