// An agent of Mastra: `mastra_agent.mjs sync|stream`.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Agent } from "@mastra/core/agent";
import { Mastra } from "@mastra/core/mastra";
import { createTool } from "@mastra/core/tools";
import { Observability } from "@mastra/observability";
import { OtelExporter } from "@mastra/otel-exporter";
import { z } from "zod";
import { QUESTIONS, SYSTEM, TOOLS } from "./task.mjs";

const [mode] = process.argv.slice(2);
const model = createOpenAICompatible({ name: "fake", baseURL: `${process.env.MODEL_URL}/v1`, apiKey: "key" })("fake-model");
const kinds = { string: z.string(), integer: z.number().int(), number: z.number(), object: z.any() };
const schema = ({ properties, required = [] }) =>
  z.object(
    Object.fromEntries(
      Object.entries(properties).map(([name, { type }]) => [
        name,
        required.includes(name) ? kinds[type] : kinds[type].optional(),
      ]),
    ),
  );
const tools = Object.fromEntries(
  Object.entries(TOOLS).map(([id, { description, parameters, run }]) => [
    id,
    createTool({ id, description, inputSchema: schema(parameters), execute: async (given) => run(given.context ?? given) }),
  ]),
);
const agent = new Agent({ id: "tester", name: "tester", instructions: SYSTEM, model, tools });
const endpoint = `${process.env.OTEL_EXPORTER_OTLP_ENDPOINT}/v1/traces`;
const exporters = [new OtelExporter({ provider: { custom: { endpoint, protocol: "http/json" } } })];
const observability = new Observability({ configs: { otel: { serviceName: "mastra", exporters } } });
const mastra = new Mastra({ agents: { tester: agent }, observability });

const messages = [];
for (const content of QUESTIONS) {
  messages.push({ role: "user", content });
  const tester = mastra.getAgent("tester");
  if (mode === "stream") {
    const result = await tester.stream(messages, { maxSteps: 6 });
    await result.consumeStream();
    messages.push(...(await result.response).messages);
  } else {
    messages.push(...(await tester.generate(messages, { maxSteps: 6 })).response.messages);
  }
}
await mastra.shutdown?.();
await observability.shutdown?.();
