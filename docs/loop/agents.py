"""One of several agent processes: `art-otel run -- python agents.py NUMBER OF`. It knows nothing of training."""

import sys
from itertools import count

from openai import OpenAI

import art_otel
from art_otel.demo.agent import guide
from art_otel.demo.task import attempts

number, processes = map(int, sys.argv[1:])
client = OpenAI()
for step in count():
    for task, _, seed in attempts(0, step)[number::processes]:  # the attempts at a task are spread over all processes
        with art_otel.rollout(name=task.topic, group_id=task.name, split="train"):
            answer = guide(client, task.topic, task.city, task.readings, seed)
            art_otel.reward(task.score(answer))
