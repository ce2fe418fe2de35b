"""Asks the service in rollouts: `python caller.py URL`."""

import sys
from urllib.request import Request, urlopen

from opentelemetry import propagate

import art_otel


@art_otel.rollout(name="umbrella", group_id="Oslo")
def ask(question: str) -> str:
    """Ask, and reward the answer."""
    headers: dict[str, str] = {}
    propagate.inject(headers)  # traceparent and baggage; instrumented HTTP clients do it themselves
    with urlopen(Request(sys.argv[1], question.encode(), headers)) as response:
        answer = response.read().decode()
    art_otel.reward(float("rain" in answer))
    return answer


for number in range(4):
    ask(f"Do I need an umbrella in Oslo? ({number})")
