"""Plays one game: `python agent.py BASE_URL SECRET` prints the last guess. It knows nothing of art-otel."""

import json
import sys
from urllib.request import Request, urlopen

SYSTEM = "Guess my number: 1, 2, 3, 4 or 5."
EXAMPLE = ["Guess.", "2", "Right! New number. Guess.", "4", "Right! New number. Guess."]


def ask(url: str, said: list[str]) -> str:
    """Ask the model; user and assistant speak in turn."""
    messages = [{"role": "system", "content": SYSTEM}]
    messages += [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(said)]
    body = json.dumps({"model": "smollm2", "messages": messages, "temperature": 1, "max_tokens": 4}).encode()
    with urlopen(Request(f"{url}/chat/completions", body, {"Content-Type": "application/json"})) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def play(url: str, secret: str) -> str:
    """Play one game of three guesses; the last guess."""
    said = list(EXAMPLE)
    for _ in range(3):
        guess = ask(url, said)
        if guess == secret:
            break
        hint = "Say a number." if not guess.isdigit() else "Higher." if int(guess) < int(secret) else "Lower."
        said += [guess, hint]
    return guess


print(play(*sys.argv[1:]))
