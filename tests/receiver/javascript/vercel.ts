// The Vercel AI SDK's own spans: an agent with a tool that nobody changed, and one that streams, in a rollout.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { reward, rollout } from './rollout.ts';

const provider = createOpenAICompatible({ name: 'vllm', baseURL: process.env.OPENAI_BASE_URL!, includeUsage: true });
const weather = tool({ description: 'weather', inputSchema: z.object({ city: z.string() }), execute: async () => 'rain' });
const agent = {
  model: provider('m'),
  system: 'You know the weather.',
  tools: { weather },
  stopWhen: stepCountIs(5),
  experimental_telemetry: { isEnabled: true },
};

await generateText({ ...agent, prompt: 'Oslo? #calls=2' });
await rollout('streamed', { 'art.group.id': 'Rome' }, async () => {
  const result = streamText({ ...agent, prompt: 'Rome?' });
  reward((await result.text).length > 0 ? 1 : 0);
});
