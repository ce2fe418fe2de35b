// What the clients of OpenAI and Anthropic give of a server: `node clients.mjs URL`, a line of JSON for each case.
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';

const url = process.argv[2];
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'sk-x', maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: 'sk-y', maxRetries: 0 });
const user = (text) => ({ model: 'm', messages: [{ role: 'user', content: text }] });
const say = (name, ...found) => console.log(JSON.stringify([name, ...found]));

async function all(stream) {
  const events = [];
  for await (const event of await stream) events.push(event);
  return events;
}

async function errorOf(name, ask) {
  try {
    say(name, 'no error', await ask());
  } catch (error) {
    say(name, error.constructor.name, error.message, error.status, error.error, error.headers?.get('retry-after-ms'));
  }
}

const chat = openai.chat.completions;
say('chat', await chat.create(user('Hi')));
say('stream', await all(chat.create({ ...user('Hi'), stream: true })));
say('completions', await all(openai.completions.create({ model: 'm', prompt: 'Once', stream: true })));
say('responses', await openai.responses.create({ model: 'm', input: 'Hi' }));
say('responses stream', await all(openai.responses.create({ model: 'm', input: 'Hi', stream: true })));
say('helper', await chat.stream(user('Hi')).finalChatCompletion());
say('raw', await (await chat.create(user('Hi')).asResponse()).json());
say('models', await all(openai.models.list()));
const messages = { ...user('Hi #think=1'), max_tokens: 99 };
say('messages', await anthropic.messages.create(messages));
say('messages stream', await all(anthropic.messages.create({ ...messages, stream: true })));
say('messages helper', await anthropic.messages.stream(messages).finalMessage());
for (const status of [400, 401, 404, 409, 422, 429, 500, 529]) {
  await errorOf(`chat ${status}`, () => chat.create(user(`Hi #fail=${status}`)));
  await errorOf(`messages ${status}`, () => anthropic.messages.create({ ...user(`Hi #fail=${status}`), max_tokens: 9 }));
}
await errorOf('files', () => openai.files.list());
await errorOf('slow', () => chat.create(user('Hi #delay=3'), { timeout: 500 }));
const stream = await chat.create({ ...user('Hi #pace=0.05'), stream: true });
stream.controller.abort();
say('left', await all(stream));
