"""API: what an app calls to mark its rollouts: where a rollout begins and ends, its steps, tools and rewards.

Invariant: nothing here needs OTel's SDK. Where tracing is off, the app's code runs as if art-otel were not there.
"""
