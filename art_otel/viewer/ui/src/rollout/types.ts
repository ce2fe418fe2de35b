// The answers about one rollout, as art_otel/viewer writes them. Unknown is null, never 0; numbers of messages, nodes,
// calls and turns are positions in their lists.
import type { Answer, Row } from "../api/types";

export interface Reward {
  name: string;
  value: number | null;
  label: string | null;
  explanation: string | null;
  target: {
    kind: string;
    step?: number | null;
    turn?: number | null;
    start?: number | null;
    end?: number | null;
  } | null;
  source: string | null;
}

export interface Part {
  kind: "text" | "reasoning" | "tool_call" | "tool_result" | "refusal" | "media" | "other";
  /** Of a tool call its arguments. */
  text: string | null;
  name?: string;
  /** Of media: an image as a `data:` address. */
  image?: string | null;
}

export interface Message {
  role: string;
  name: string | null;
  parts: Part[];
}

export interface Drift {
  at: number;
  before: (number | string)[];
  expected: (number | string)[];
  actual: (number | string)[];
  expectedText: string | null;
  actualText: string | null;
}

export interface Turn {
  turn: number;
  call: number;
  relation: string;
  agent: string | null;
  step: number | null;
  finishReason: string | null;
  completionTokens: number | null;
  tokensUntrained: string | null;
  textUntrained: string | null;
  /** What the call is for, where the policy does not learn from it. */
  markedUntrained: string | null;
  label: string | null;
  drift: Drift | null;
  verdict: string | null;
}

export interface Call {
  agent: string | null;
  model: string | null;
  startMs: number;
  endMs: number | null;
  error: string | null;
  /** The node at which its prompt ends, -1 for an empty one. */
  prompt: number | null;
  promptMessages: number | null;
  promptTokens: number | null;
}

export interface Tool {
  result: number | null;
  execution: { name: string | null; result: string | null; error: string | null; durationMs: number | null } | null;
  /** The error of its span, or with which words its result says that it failed. */
  failed: string | null;
  blocks: AgentEntry[];
}

export interface TurnEntry {
  kind: "turn";
  turn: number;
  message: number | null;
  rewards: number[];
  /** One for each tool call of the message. */
  tools: Tool[];
  blocks: AgentEntry[];
}

export interface FailedEntry {
  kind: "failed";
  call: number;
  /** The tools whose results were new in the prompt. */
  results: string[];
  next: number | null;
  again: boolean;
}

export interface AgentEntry {
  kind: "agent";
  agent: string | null;
  calls: number[];
  entries: Entry[];
}

export type Entry =
  | TurnEntry
  | FailedEntry
  | AgentEntry
  | { kind: "message"; message: number }
  | { kind: "compaction"; before: number; after: number }
  | { kind: "branch"; after: number };

export interface Rollout extends Answer {
  row: Row;
  parentRolloutId: string | null;
  previous: string | null;
  next: string | null;
  groupPrevious: string | null;
  groupNext: string | null;
  advantage: number | null;
  /** How it came about; null where a group alone does not tell it. */
  formula: string | null;
  /** In so many other rollouts. */
  sameError: number;
  error: string | null;
  rewards: Reward[];
  metrics: Record<string, unknown>;
  metadata: Record<string, unknown>;
  logs: unknown[];
  tools: unknown[];
  turns: Turn[];
  story: Entry[];
  messages: Message[];
  /** Each node of the message tree: the node before it, -1 for the root, and its message. */
  nodes: [number | null, number][];
  calls: Call[];
  spans: { name: string; depth: number; call: number | null; startMs: number; endMs: number | null }[];
}

export interface Range {
  min: number | null;
  max: number | null;
}

export interface TurnTokens {
  turn: number;
  /** How many tokens stand before the completion in its history. */
  start: number;
  context: (number | string)[];
  contextTexts: string[] | null;
  ids: (number | string)[];
  texts: string[] | null;
  mask: number[];
  logprobs: (number | null)[];
  advantages: (number | null)[];
  weights: { version: string; start: number }[];
  why: { step: string; says: string }[];
  /** Tokens of the context that stand for an image, or whatever the kind is. */
  placeholders: { kind: string; start: number; length: number }[];
}

export interface Tokens extends Answer {
  first: number;
  turns: TurnTokens[];
  scale: { logprob: Range; advantage: Range };
  unknown: string | null;
}
