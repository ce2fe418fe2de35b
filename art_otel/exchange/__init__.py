"""Exchange: one request to a model server and its answer, seen by the hook in a client or by the gateway.

api_dialects.py     the APIs, a row each, with all that other modules need of one
exchange.py         the request, the answer as far as it has come, its server-sent events, and what of both is
                    written to the span of the call; conventions.exchanges says what it means
failures.py         why a call failed, as its status or its answer says
assembly.py         the events of each API, joined to the body that the answer has without streaming
token_requests.py   the fields that art-otel adds to a request for token ids, and takes out of the answer again
translation.py      a request in another dialect goes to the server as Chat Completions, and the answer comes back
chat_request.py     builds that request: its messages, tools and settings; and the error for what it cannot express
messages.py         Anthropic's Messages: its requests, and its answers whole or event by event
responses.py        the Responses API's requests; response_shape.py has its answers
generate_content.py Gemini's requests and answers
answer_shapes.py    what a shape of an answer is; those of Chat Completions and Completions
"""
