"""One request to a model server and its answer, as the hook in a client or the gateway sees both pass.

exchange.py        the request, the answer as far as it has come, why it failed
events.py          a streamed answer: the one splitter of server-sent events
assembly.py        the events of each API, joined to the body that the answer has without streaming
token_requests.py  what a server is asked for beside the app's own request, and taken out of the answer again
attributes.py      what of an exchange stands on the span of its call: only here are attributes made
"""
