// An agent of Vercel's AI SDK: `vercel_agent.mjs openai|stream|anthropic [NAME]`; the name is its function's.
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { NodeTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-node";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";

const [mode, functionId] = process.argv.slice(2);
const url = `${process.env.MODEL_URL}/v1`;
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(new OTLPTraceExporter())] });
provider.register();

async function model() {
  if (mode === "anthropic") {
    const { createAnthropic } = await import("@ai-sdk/anthropic");
    return createAnthropic({ baseURL: url, apiKey: "key" })("claude-test-1");
  }
  const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
  return createOpenAICompatible({ name: "fake", baseURL: url, apiKey: "key", includeUsage: true })("fake-model");
}

const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const get_weather = tool({
  description: "The weather of a city.",
  inputSchema: jsonSchema(city),
  execute: async ({ city }) => ({ weather: { Paris: "sunny", Tokyo: "rainy" }[city] }),
});
const asked = {
  model: await model(),
  system: "You are a weather agent.",
  prompt: "Weather in Paris and Tokyo?",
  tools: { get_weather },
  stopWhen: stepCountIs(4),
  experimental_telemetry: { isEnabled: true, functionId },
};
if (mode === "stream") {
  for await (const _ of streamText(asked).fullStream);
} else {
  await generateText(asked);
}
await provider.shutdown();
