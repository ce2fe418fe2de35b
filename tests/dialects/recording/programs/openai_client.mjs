// An agent of the OpenAI client: `openai_client.mjs chat|stream|responses|rstream openinference|traceloop`.
import { trace } from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { NodeTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-node";
import OpenAI from "openai";
import { QUESTIONS, SYSTEM, TOOLS } from "./task.mjs";

const [mode, name] = process.argv.slice(2);
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(new OTLPTraceExporter())] });
provider.register();
const { OpenAIInstrumentation } = await import(
  name === "openinference" ? "@arizeai/openinference-instrumentation-openai" : "@traceloop/instrumentation-openai"
);
const instrumentation = new OpenAIInstrumentation();
instrumentation.setTracerProvider(provider);
instrumentation.manuallyInstrument(OpenAI);
const client = new OpenAI({ baseURL: `${process.env.MODEL_URL}/v1`, apiKey: "key" });
const functions = Object.entries(TOOLS).map(([name, { description, parameters }]) => ({ name, description, parameters }));

async function chat(messages) {
  const tools = functions.map((one) => ({ type: "function", function: one }));
  const asked = { model: "fake-model", messages, tools };
  if (mode === "chat") {
    const { role, content, tool_calls } = (await client.chat.completions.create(asked)).choices[0].message;
    return tool_calls ? { role, content, tool_calls } : { role, content };
  }
  const said = { role: "assistant", content: null };
  const options = { stream: true, stream_options: { include_usage: true } };
  for await (const chunk of await client.chat.completions.create({ ...asked, ...options })) {
    const delta = chunk.choices[0]?.delta ?? {};
    if (delta.content) said.content = (said.content ?? "") + delta.content;
    for (const call of delta.tool_calls ?? []) {
      said.tool_calls ??= [];
      said.tool_calls[call.index] ??= { id: call.id, type: "function", function: { name: call.function.name, arguments: "" } };
      said.tool_calls[call.index].function.arguments += call.function.arguments;
    }
  }
  return said;
}

async function runChat() {
  const messages = [{ role: "system", content: SYSTEM }];
  for (const content of QUESTIONS) {
    messages.push({ role: "user", content });
    for (;;) {
      const said = await chat([...messages]);
      messages.push(said);
      if (!said.tool_calls) break;
      for (const { id, function: { name, arguments: given } } of said.tool_calls) {
        messages.push({ role: "tool", tool_call_id: id, content: TOOLS[name].run(JSON.parse(given)) });
      }
    }
  }
}

async function respond(input) {
  const tools = functions.map((one) => ({ type: "function", strict: false, ...one }));
  const asked = { model: "fake-model", instructions: SYSTEM, input, tools };
  if (mode === "responses") return (await client.responses.create(asked)).output;
  let output = [];
  for await (const event of await client.responses.create({ ...asked, stream: true })) {
    if (event.type === "response.completed") output = event.response.output;
  }
  return output;
}

async function runResponses() {
  const items = [];
  for (const content of QUESTIONS) {
    items.push({ role: "user", content });
    for (;;) {
      const output = (await respond([...items])).filter((item) => item.type !== "reasoning");
      items.push(...output);
      const calls = output.filter((item) => item.type === "function_call");
      if (!calls.length) break;
      for (const { call_id, name, arguments: given } of calls) {
        items.push({ type: "function_call_output", call_id, output: TOOLS[name].run(JSON.parse(given)) });
      }
    }
  }
}

await trace.getTracer("app").startActiveSpan("agent run", async (span) => {
  await (["chat", "stream"].includes(mode) ? runChat() : runResponses());
  span.end();
});
await provider.shutdown();
