"""Tracing: the rollouts of a live app become spans, and the spans become lines of a spool and trajectories.

api        what the app calls: rollout, step, tool, reward, untrained      needs OTel's API only
gathering  runs rollouts and returns their trajectories
setup      configure(): providers, instrumentors, the recording            needs OTel's SDK from here on
openai     exact tokens of openai's clients
sdk        the span processor, and spans as lines
"""
