"""An agent that plays a game for each line `BASE_URL SECRET` that it reads. It knows nothing of art-otel."""

import json
import sys
from urllib.request import Request, urlopen


def ask(url: str, messages: list[dict[str, str]]) -> str:
    """Ask the model."""
    body = json.dumps({"model": "policy", "messages": messages}).encode()
    with urlopen(Request(f"{url}/chat/completions", body)) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def play(url: str, secret: str) -> str:
    """Play one game; the last guess."""
    messages = [{"role": "user", "content": "guess"}]
    for _ in range(3):
        guess = ask(url, messages)
        if guess == secret:
            break
        hint = "guess" if not guess.isdigit() else "higher" if int(guess) < int(secret) else "lower"
        messages += [{"role": "assistant", "content": guess}, {"role": "user", "content": hint}]
    return guess


for line in sys.stdin:
    print(play(*line.split()), flush=True)
