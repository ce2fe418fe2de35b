import { context, propagation, SpanStatusCode, trace, type Attributes } from '@opentelemetry/api';
import { randomUUID } from 'node:crypto';

const tracer = trace.getTracer('my-agent');

/** Runs `run` as a rollout. `attributes` are its group, split, training step and so on. */
export function rollout<T>(name: string, attributes: Attributes, run: (id: string) => Promise<T>): Promise<T> {
  const id = randomUUID();
  const baggage = propagation.getActiveBaggage() ?? propagation.createBaggage();
  const inside = propagation.setBaggage(context.active(), baggage.setEntry('art.rollout.id', { value: id }));
  return tracer.startActiveSpan(`rollout ${name}`, { attributes }, inside, async (span) => {
    try {
      return await run(id);
    } catch (error) {
      span.recordException(error as Error);
      span.setStatus({ code: SpanStatusCode.ERROR, message: String(error) });
      throw error;
    } finally {
      span.end();
    }
  });
}

/** Rewards the step or rollout that runs here; with an id the rollout of that id, also one that ended long ago. */
export function reward(value: number, name = 'reward', id?: string) {
  const attributes: Attributes = { 'art.reward': value };
  if (id !== undefined) attributes['art.rollout.id'] = id;
  tracer.startSpan(`reward ${name}`, { attributes, root: id !== undefined }).end();
}
