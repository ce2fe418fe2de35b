"""Calls from a ThreadPoolExecutor, as batch scripts make them. Prints one JSON line: the answers."""

import json
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI


def main() -> None:
    """Twelve questions, four at a time."""
    with OpenAI() as client, ThreadPoolExecutor(4) as pool:

        def ask(number: int) -> str | None:
            reply = client.chat.completions.create(
                model="Qwen/Qwen3-8B", messages=[{"role": "user", "content": f"Question {number}"}]
            )
            return reply.choices[0].message.content

        print(json.dumps(list(pool.map(ask, range(12)))))


if __name__ == "__main__":
    main()
