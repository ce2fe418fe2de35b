// Traces this process: node --import ./tracing.ts agent.ts
import { OpenAIInstrumentation } from '@arizeai/openinference-instrumentation-openai';
import { BaggageSpanProcessor } from '@opentelemetry/baggage-span-processor';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto'; // or -otlp-http, which sends JSON
import { NodeSDK } from '@opentelemetry/sdk-node';
import { BatchSpanProcessor, type Span, type SpanProcessor } from '@opentelemetry/sdk-trace-base';
import OpenAI from 'openai';

/** Counts the spans of each rollout that begins here, so that the receiver knows when it has them all. */
class SpanCounts implements SpanProcessor {
  private counts = new Map<string, number>();

  onStart(span: Span) {
    const id = String(span.attributes['art.rollout.id']);
    if (span.name.startsWith('rollout ')) this.counts.set(id, 0);
    else if (this.counts.has(id)) this.counts.set(id, this.counts.get(id)! + 1);
  }

  onEnding(span: Span) {
    if (!span.name.startsWith('rollout ')) return;
    const id = String(span.attributes['art.rollout.id']);
    span.setAttribute('art.rollout.spans.started', this.counts.get(id) ?? 0);
    this.counts.delete(id);
  }

  onEnd() {}
  async forceFlush() {}
  async shutdown() {}
}

const spans = new BatchSpanProcessor(new OTLPTraceExporter());
const fromBaggage = new BaggageSpanProcessor((key) => key.startsWith('art.')); // art.rollout.id, on every span
const sdk = new NodeSDK({ spanProcessors: [fromBaggage, new SpanCounts(), spans] });
sdk.start();
new OpenAIInstrumentation().manuallyInstrument(OpenAI);
process.once('beforeExit', () => sdk.shutdown());

/** Sends what has ended. A service awaits this before it answers. */
export const flush = () => spans.forceFlush();
