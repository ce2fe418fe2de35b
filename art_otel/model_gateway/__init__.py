"""Model gateway: a proxy between agents and model servers that records each call as a span.

An agent needs nothing but another base URL. `gateway` tells the story of a request:

    addresses ─► which rollout?        exact ─► sample it from token ids, or ask for token ids as well
    upstreams ─► which server?         rollouts ─► a span below the rollout's own span, in the spool of a receiver

The receiver then delivers finished rollouts to trainers. `in_process` runs the same gateway inside an app.

Invariant: the agent sees the server's own answers. A call that cannot be recorded is still answered, and its rollout
says that the call is missing.
"""
