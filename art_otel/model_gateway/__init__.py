"""Model gateway: what stands between agents and model servers, and records each call as a span.

An agent needs nothing but another base URL. `gateway` tells the story: a request comes, belongs to a rollout
(`addresses`), goes to a server (`upstreams`) that samples it from ids (`exact`) or is asked for token ids as well,
streams back as an `Exchange`, and becomes a span below its rollout's own (`rollouts`) in the spool of a receiver,
which hands finished rollouts to trainers. `in_process` is the same inside an app that runs the rollouts.

Invariant: to the agent it is the server. What could not be recorded costs it no answer, and its rollout says so.
"""
