"""Ray tasks: each is a rollout, in a process of Ray's."""

import sys

import ray
from conversation import converse

import art_otel


@ray.remote
@art_otel.rollout
def answer(question: str) -> str:
    """Answer a question."""
    return converse(question)


ray.init(address="local", num_cpus=2, include_dashboard=False, _temp_dir=sys.argv[1])
print(ray.get([answer.remote(question) for question in sys.argv[2:]]))
ray.shutdown()
