// An agent of Vercel's AI SDK: `vercel_agent.mjs openai|stream|responses|rstream|anthropic [NAME]`.
// The name is its function's; `otel`, `legacy` and `openinference` are version 7's ways to record.
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { trace } from "@opentelemetry/api";
import { NodeTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-node";
import * as ai from "ai";
import { QUESTIONS, SYSTEM, TOOLS } from "./task.mjs";

const [mode, name] = process.argv.slice(2);
const url = `${process.env.MODEL_URL}/v1`;
let processor = new SimpleSpanProcessor(new OTLPTraceExporter());
if (name === "openinference") {
  const { OpenInferenceSimpleSpanProcessor } = await import("@arizeai/openinference-vercel");
  processor = new OpenInferenceSimpleSpanProcessor({ exporter: new OTLPTraceExporter() });
}
const provider = new NodeTracerProvider({ spanProcessors: [processor] });
provider.register();
const isVersion7 = ["otel", "legacy", "openinference"].includes(name);
if (isVersion7) {
  const { LegacyOpenTelemetry, OpenTelemetry } = await import("@ai-sdk/otel");
  ai.registerTelemetry(name === "legacy" ? new LegacyOpenTelemetry() : new OpenTelemetry());
}

async function model() {
  if (mode === "anthropic") {
    const { createAnthropic } = await import("@ai-sdk/anthropic");
    return createAnthropic({ baseURL: url, apiKey: "key" })("claude-test-1");
  }
  if (isVersion7) {
    const { createOpenAI } = await import("@ai-sdk/openai");
    const openai = createOpenAI({ baseURL: url, apiKey: "key" });
    return ["responses", "rstream"].includes(mode) ? openai.responses("fake-model") : openai.chat("fake-model");
  }
  const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
  return createOpenAICompatible({ name: "fake", baseURL: url, apiKey: "key", includeUsage: true })("fake-model");
}

const tools = Object.fromEntries(
  Object.entries(TOOLS).map(([name, { description, parameters, run }]) => [
    name,
    ai.tool({ description, inputSchema: ai.jsonSchema(parameters), execute: async (given) => run(given) }),
  ]),
);
const asked = { model: await model(), system: SYSTEM, tools, stopWhen: (ai.stepCountIs ?? ai.isStepCount)(6) };
const telemetry = isVersion7 ? {} : { experimental_telemetry: { isEnabled: true, functionId: name } };

async function run() {
  const messages = [];
  for (const content of QUESTIONS) {
    messages.push({ role: "user", content });
    const given = { ...asked, ...telemetry, messages: [...messages] };
    if (["stream", "rstream"].includes(mode)) {
      const result = ai.streamText(given);
      await result.consumeStream();
      messages.push(...(await result.response).messages);
    } else {
      messages.push(...(await ai.generateText(given)).response.messages);
    }
  }
}

if (QUESTIONS.length > 1) {
  await trace.getTracer("app").startActiveSpan("agent run", async (span) => {
    await run();
    span.end();
  });
} else {
  await run();
}
await provider.shutdown();
