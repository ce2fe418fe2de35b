// A stream and several choices, each in a rollout of its own; the second has its group from the baggage.
import { context, propagation } from '@opentelemetry/api';
import OpenAI from 'openai';
import { rollout } from './rollout.ts';

const client = new OpenAI();
const body = { model: 'm', messages: [{ role: 'user' as const, content: 'Go on.' }], logprobs: true, return_token_ids: true };

await rollout('stream', {}, async () => {
  for await (const _ of await client.chat.completions.create({ ...body, stream: true }));
});
const baggage = propagation.createBaggage({ 'art.group.id': { value: 'task 17' } });
await context.with(propagation.setBaggage(context.active(), baggage), () =>
  rollout('choices', {}, async () => {
    await client.chat.completions.create({ ...body, n: 2 });
  }),
);
