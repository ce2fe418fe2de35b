// An agent as a service. The rollout of whoever asks goes on here.
import { context, propagation } from '@opentelemetry/api';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { answer } from './agent.ts';
import { flush } from './tracing.ts';

const server = createServer(async (request, response) => {
  const caller = propagation.extract(context.active(), request.headers); // traceparent and baggage
  const said = await context.with(caller, async () => answer(await text(request)));
  await flush(); // before the rollout can end
  response.end(said);
});
server.listen(Number(process.env.PORT ?? 8080), '127.0.0.1');
