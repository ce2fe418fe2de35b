"""Every way to call a model: chat, parsed, raw, streamed raw, text completion, responses, retries and errors.

Prints one JSON line: what each way said.
"""

import json

from openai import BadRequestError, OpenAI
from pydantic import BaseModel

MODEL = "Qwen/Qwen3-8B"


class Place(BaseModel):
    """A structured answer."""

    city: str


def user(text: str) -> list:
    """A prompt."""
    return [{"role": "user", "content": text}]


def main() -> None:
    """Each once."""
    said = {}
    with OpenAI() as client:
        chat = client.chat.completions
        said["n"] = [one.message.content for one in chat.create(model=MODEL, messages=user("Two"), n=2).choices]
        parsed = chat.parse(model=MODEL, messages=user('Where? #say={"city":"Rome"}'), response_format=Place)
        said["parse"] = parsed.choices[0].message.parsed.city
        raw = chat.with_raw_response.create(model=MODEL, messages=user("Raw"))
        said["raw"] = raw.parse().choices[0].message.content
        with chat.with_streaming_response.create(model=MODEL, messages=user("Raw stream")) as streamed:
            said["streaming_raw"] = streamed.parse().choices[0].message.content
        said["retried"] = chat.create(model=MODEL, messages=user("Again #fail=429x1")).choices[0].message.content
        try:
            chat.create(model=MODEL, messages=user("Never #fail=400"))
        except BadRequestError as error:
            said["refused"] = error.status_code
        said["text"] = client.completions.create(model=MODEL, prompt="Once upon").choices[0].text
        said["responses"] = client.responses.create(model=MODEL, input="Respond", instructions="Be brief").output_text
    print(json.dumps(said))


if __name__ == "__main__":
    main()
