"""Laminar, which instruments the clients that it finds; "hand": none, and each request is an app's own span."""

import json
from contextlib import contextmanager

from recorder import ENDPOINT, unwrapped


@contextmanager
def recorded(what: str):
    from lmnr import Laminar

    url, _, port = ENDPOINT.rpartition(":")
    only = {"instruments": set()} if what == "hand" else {}
    Laminar.initialize(
        project_api_key="key", base_url=url, http_port=int(port), grpc_port=int(port), force_http=True, **only
    )
    with Laminar.start_as_current_span(name="agent run"):
        yield by_hand if what == "hand" else unwrapped
    Laminar.flush()


def by_hand(client):
    """The client, whose Chat Completions an app records itself."""
    from lmnr import Laminar

    create = client.chat.completions.create

    def recorded_create(**asked):
        with Laminar.start_as_current_span(name="ask", span_type="LLM", input=asked["messages"]):
            Laminar.set_span_attributes({"gen_ai.system": "openai", "gen_ai.request.model": asked["model"]})
            response = create(**asked)
            message = response.choices[0].message.model_dump(exclude_none=True)
            Laminar.set_span_output(json.loads(json.dumps(message)))
        return response

    client.chat.completions.create = recorded_create
    return client
