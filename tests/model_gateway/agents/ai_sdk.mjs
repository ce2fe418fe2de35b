// An agent of the AI SDK with a tool: `node ai_sdk.mjs NAME BASE_URL TEXT`; prints the last answer.
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, isStepCount, streamText, tool } from 'ai';
import { z } from 'zod';

const [name, baseURL, prompt] = process.argv.slice(2);
const responses = name === 'ai-sdk-responses';
const settings = { name: 'gateway', baseURL, apiKey: 'none' };
const asked = {
  model: responses ? createOpenAI(settings).responses('m') : createOpenAICompatible(settings).chatModel('m'),
  instructions: 'You are a weather agent.',
  prompt,
  stopWhen: isStepCount(4),
  tools: {
    get_weather: tool({
      description: 'The weather of a city.',
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => `sunny in ${city}`,
    }),
  },
};
console.log(responses ? await streamText(asked).text : (await generateText(asked)).text);
