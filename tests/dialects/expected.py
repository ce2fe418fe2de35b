"""What is expected of recordings that cannot be right; every other recording is right and complete."""

FLAGGED = {
    "anthropic_native_stream": "raw streams have no `gen_ai.output.messages`",
    "langgraph_langsmith_anthropic": "the client's own spans are traces of their own, without `gen_ai.input.messages`",
    "langgraph_oi_anthropic": "the client's own spans are traces of their own, without `gen_ai.input.messages`",
    "logfire_anthropic_stream_v1": "`response_data.combined_chunk_content` is the text without the tool calls",
    "mastra": "`mastra.model_step.input` names tool calls and results without what they said",
}
"""Recordings that are incomplete, and what the recorder lost, with its attribute."""

WITHOUT_CALLS = {
    "autogen_native": "openinference-instrumentation-openai",
    "crewai_oi": "openinference-instrumentation-litellm",
    "crewai_traceloop": "openinference-instrumentation-litellm",
    "openai_agents_genai_chat": "openinference-instrumentation-openai",
    "openai_agents_genai_responses": "openinference-instrumentation-openai",
    "openai_agents_genai_rstream": "openinference-instrumentation-openai",
    "smolagents_genai": "openinference-instrumentation-openai",
}
"""Recorders that write no LLM span, and the instrumentor that the hint names."""
