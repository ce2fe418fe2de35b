"""What is expected of recordings that cannot be right; every other recording is right and complete."""

FLAGGED = {
    "adk_native": "`gen_ai.output.messages` and `gen_ai.input.messages` have thoughts as text parts",
    "adk_oi": "both calls are on one span, where `gen_ai.input.messages` and `gen_ai.output.messages` of the first are"
    " overwritten; `llm.output_messages.0.message.tool_calls` are left of it",
    "anthropic_native_stream": "raw streams have no `gen_ai.output.messages`",
    "anthropic_old_traceloop_stream": "`gen_ai.completion.1` and `.2` have the role of tool calls and nothing else",
    "bedrock_botocore_invoke": "`gen_ai.choice` has `tool_calls` without the text beside them",
    "bedrock_botocore_stream": "`gen_ai.choice` has `tool_calls` without the text beside them",
    "bedrock_oi_v01_converse": "`llm.input_messages` has the last of several answers of tools",
    "gemini_oi_v01": "`llm.input_messages` joins answers of tools, and `input.value` has them as Python prints them",
    "gemini_oi_v01_stream": "`output.value` has all parts of a stream as one",
    "gemini_otel_v04_thinking": "`gen_ai.output.messages` has thoughts as text parts",
    "langfuse_v3_responses": "`langfuse.observation.input` lacks the instructions, and nothing has the tools",
    "langgraph_traceloop_v040": "`gen_ai.prompt` lacks the text beside tool calls",
    "langfuse_v3_stream": "`langfuse.observation.output` of a stream is the text without the tool calls",
    "litellm_callback_responses": "`gen_ai.input.messages` has reasoning, function calls and their outputs as a user's"
    " empty messages",
    "litellm_callback_rstream": "`gen_ai.input.messages` has reasoning, function calls and their outputs as a user's"
    " empty messages",
    "litellm_v2_responses": "no attribute has the `instructions`",
    "openai_genai_v11_responses": "`gen_ai.input.messages` lacks function calls and their outputs",
    "openai_traceloop_v047_responses": "`gen_ai.prompt` lacks function calls and their outputs",
    "openlit_v141_anthropic": "`gen_ai.output.messages` has the first tool call only",
    "pydantic_v1_attributes": "`gen_ai.input.messages` has reasoning that was sent as `<think>` in the text",
    "gemini_otel_sync_legacy": "no `gen_ai.input.messages` or `gen_ai.output.messages`: content capture was off",
    "llama_traceloop": "`gen_ai.output.messages` and `gen_ai.input.messages` have no parts of tool calls",
    "logfire_anthropic_stream_v1": "`response_data.combined_chunk_content` is the text without the tool calls",
    "mastra": "`mastra.model_step.input` names tool calls and results without what they said",
    "openai_agents_traceloop_chat": "no `gen_ai.output.messages` of Chat Completions",
    "openai_agents_traceloop_stream": "no `gen_ai.output.messages` of Chat Completions",
    "openlit_145_stream": "`gen_ai.input.messages` has an assistant's text without the tool calls beside it",
    "openlit_anthropic": "`gen_ai.prompt` is one text without tool calls; `gen_ai.tool.name` has the first call only",
    "openlit_stream": "`gen_ai.prompt` is one text without tool calls",
    "sk_native": "`gen_ai.choice` and `gen_ai.assistant.message` have `tool_calls` without the text beside them",
    "harder_adk_native_litellm": "`gen_ai.output.messages` and `gen_ai.input.messages` have thoughts as text parts",
    "harder_agno_oi_responses": "`llm.input_messages` has the text beside tool calls, which agno does not send",
    "harder_anthropic_genai_v12_sync": "it instruments no `anthropic` 2, whose own spans have no content by default",
    "harder_bedrock_botocore_converse": "`gen_ai.choice` has `tool_calls` without the text beside them",
    "harder_bedrock_botocore_stream": "`gen_ai.choice` has `tool_calls` without the text beside them",
    "harder_bedrock_botocore_invoke": "`gen_ai.choice` has `tool_calls` without the text beside them",
    "harder_haystack_oi": "`llm.input_messages` has neither tool calls nor results of tools",
    "harder_langgraph_genai_v12_openai": "`gen_ai.output.messages` has no text beside tool calls",
    "harder_langgraph_genai_v12_responses": "no `gen_ai.output.messages` of Responses",
    "harder_langsmith_anthropic_sync": "Anthropic's client writes spans without content in a trace of their own",
    "harder_langsmith_anthropic_thinking": "Anthropic's client writes spans without content in a trace of their own",
    "harder_litellm_oi_rstream": "no `output.value` of a stream of the Responses API",
    "harder_llama_traceloop": "`gen_ai.output.messages` and `gen_ai.input.messages` have no parts of tool calls",
    "harder_mastra_stream": "`mastra.model_step.input` names tool calls and results without what they said",
    "harder_mastra_sync": "`mastra.model_step.input` names tool calls and results without what they said",
    "harder_openai_js_oi_stream": "`llm.output_messages.0.message.tool_calls.0` of a stream is several calls joined",
    "harder_openai_js_traceloop_responses": "`gen_ai.input.messages` of Responses is one text without instructions,"
    " `gen_ai.output.messages` has no tool calls",
    "harder_openai_js_traceloop_rstream": "streams of the Responses API have no `gen_ai.output.messages`",
    "harder_openlit_145_chat": "`gen_ai.input.messages` has an assistant's text without the tool calls beside it",
    "harder_openlit_145_stream": "`gen_ai.input.messages` has an assistant's text without the tool calls beside it",
    "harder_mlflow_anthropic_stream": "`mlflow.spanOutputs` of a raw stream is `<anthropic.Stream object at 0x…>`",
    "harder_openai_agents_traceloop_chat": "no `gen_ai.output.messages` of Chat Completions",
    "harder_openai_agents_traceloop_stream": "no `gen_ai.output.messages` of Chat Completions",
    "harder_pydantic_v2_responses": "`gen_ai.input.messages` has reasoning that was sent as `<think>` in the text",
    "harder_sk_native": "`gen_ai.choice` and `gen_ai.assistant.message` have `tool_calls` without the text beside them",
}
"""Recordings that are incomplete, and what the recorder lost, with its attribute."""

DOUBTED = {
    "anthropic_native_sync": "no attribute has the definitions of tools",
    "harder_anthropic_native_helper": "no attribute has the definitions of tools",
    "harder_anthropic_native_sync": "no attribute has the definitions of tools",
    "harder_anthropic_native_thinking": "no attribute has the definitions of tools",
    "harder_adk_native_gemini": "thoughts were counted, and `gen_ai.output.messages` does not say which texts are some",
    "harder_gemini_otel_v12_sync": "thoughts were counted, and before 1.3 they were texts of `gen_ai.output.messages`",
    "harder_livekit": "`gen_ai.tool.definitions` has functions without their parameters",
    "livekit_native": "`gen_ai.tool.definitions` has functions without their parameters",
}
"""Recordings that come out right and are incomplete, because the same signs can hide a loss."""

UNTRAINED = {
    "harder_adk_native_gemini": "what is doubted",
    "harder_gemini_otel_v12_sync": "what is doubted",
    "logfire_v52_stream_v1": "`response_data` has no finish reason, and its log is written however the stream ended",
}
"""Recordings that come out right, and of which not every answer is trained: why."""

WITHOUT_CALLS = {
    "autogen_native": "openinference-instrumentation-openai",
    "crewai_oi": "openinference-instrumentation-litellm",
    "crewai_traceloop": "openinference-instrumentation-litellm",
    "harder_openai_js_traceloop_v026_responses": "opentelemetry-instrumentation-openai",
    "openai_agents_genai_chat": "openinference-instrumentation-openai",
    "openai_agents_genai_responses": "openinference-instrumentation-openai",
    "openai_agents_genai_rstream": "openinference-instrumentation-openai",
    "smolagents_genai": "openinference-instrumentation-openai",
}
"""Recorders that write no LLM span, and the instrumentor that the hint names."""

RENAMED = {
    "harder_agno_oi_chat": "`llm.input_messages` has `system` where agno sent `developer`",
    "harder_agno_oi_stream": "`llm.input_messages` has `system` where agno sent `developer`",
}
"""Recordings that are right but for the name of a role that OpenAI's models take for the same."""
