import OpenAI from 'openai';
import { reward, rollout } from './rollout.ts';

const client = new OpenAI();
const tools: OpenAI.ChatCompletionTool[] = [
  {
    type: 'function',
    function: { name: 'weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } },
  },
];

export async function answer(question: string): Promise<string> {
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'user', content: question }];
  for (;;) {
    const body = { model: 'm', messages, tools, logprobs: true, return_token_ids: true }; // the last for vLLM
    const { message } = (await client.chat.completions.create(body)).choices[0];
    messages.push(message);
    if (!message.tool_calls) return message.content ?? '';
    for (const call of message.tool_calls) messages.push({ role: 'tool', tool_call_id: call.id, content: 'rain' });
  }
}

if (import.meta.main) {
  for (let attempt = 0; attempt < 4; attempt++) {
    await rollout('weather', { 'art.group.id': 'Oslo', 'art.split': 'train' }, async () => {
      const text = await answer(`Do I need an umbrella in Oslo? (${attempt})`);
      reward(text.includes('rain') ? 1 : 0);
    });
  }
}
