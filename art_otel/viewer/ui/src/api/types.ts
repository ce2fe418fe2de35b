// The answers of the API, as art_otel/viewer writes them. Unknown is null, never 0; times are strings of nanoseconds.

export interface Answer {
  generation: string;
}

export interface Count {
  name: string | null;
  count: number;
}

export interface Reason {
  reason: string;
  count: number;
  means: string;
  helps: string;
}

export interface Info extends Answer {
  version: string;
  name: string;
  sources: string[];
  hasTokenizer: boolean;
  hasRuns: boolean;
  hasSpans: boolean;
  live: boolean;
  canLabel: boolean;
  options?: Option[];
  /** Of an exported file: how many rollouts are in it, of how many that match, of how many there are. */
  chosen?: { rollouts: number; matching: number; total: number; by: string };
}

export interface Overview extends Answer {
  /** None where they are too many for a choice. */
  groups: { key: string; name: string; step: number | null }[];
  labels: { name: string; count: number }[];
  total: number;
  complete: number;
  trainable: number | null;
  judged?: boolean;
  problem?: string | null;
  statuses: Count[];
  incomplete: Reason[];
  skipped: Reason[];
  splits: Count[];
  steps: number[];
  versions: string[];
  models: Count[];
  agents: Count[];
  sources: Count[];
  repeated: number;
  sharedGroups: number;
  rewards: {
    known: number;
    unknown: number;
    min: number | null;
    max: number | null;
    mean: number | null;
    bins: { from: number; to: number; count: number }[];
  };
  report: {
    spans: {
      read: number;
      used: number;
      duplicate: number;
      ignored: { reason: string; count: number }[];
      quarantined: { reason: string; count: number }[];
    };
    calls: { total: number; completed: number; failed: number };
  } | null;
}

export interface Row {
  key: string;
  source: string;
  agents: string[];
  labels: string[];
  /** Empty where there is none. */
  note: string;
  correctedReward: number | null;
  rolloutId: string;
  attempt: number | null;
  name: string | null;
  status: string;
  reward: number | null;
  complete: boolean;
  reasons: string[];
  calls: number | null;
  turns: number | null;
  sampledTokens: number | null;
  trainedTokens: number | null;
  verdict: string | null;
  /** Why completions of it are skipped. */
  completions: string[];
  judged?: boolean;
  groupId: string | null;
  groupKey: string | null;
  split: string | null;
  step: number | null;
  policyVersion: string | number | null;
  startedAt: string | null;
  durationMs: number | null;
  models: string[];
  unfinished: boolean;
}

export interface RowPage extends Answer {
  total: number;
  offset: number;
  rows: Row[];
}

export interface Reward {
  name: string;
  value: number | null;
  label: string | null;
  explanation: string | null;
  target: {
    kind: string;
    step?: number | null;
    turn?: number | null;
    choice?: number | null;
    start?: number | null;
    end?: number | null;
  } | null;
  source: string | null;
}

export interface Part {
  kind: "text" | "reasoning" | "tool_call" | "tool_result" | "refusal" | "media" | "other";
  text: string | null;
  name?: string | null;
  callId?: string | null;
  arguments?: unknown;
}

export interface Message {
  role: string;
  name?: string | null;
  parts: Part[];
  turn: number | null;
  completionId: string | number | null;
  state: "trained" | "context" | "copy" | "untrained";
  why: string | null;
  trainedIn: { history: number; turn: number } | null;
  rewards: number[];
  execution: { name: string | null; result: unknown; error: string | null; durationMs: number | null } | null;
  added: boolean;
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
  call: number | string | null;
  choice: number | null;
  parent: number | null;
  tokenParent: number | null;
  relation: string;
  agent: string | null;
  step: number | null;
  finishReason: string | null;
  completionTokens: number | null;
  promptTokens: number | null;
  tokensUntrained: string | null;
  textUntrained: string | null;
  /** What the call is for, where the policy does not learn from it. */
  markedUntrained: string | null;
  failed: boolean;
  label: string | null;
  drift: Drift | null;
  rewrittenAt?: number | null;
  model: string | null;
  policyVersion: string | number | null;
  verdict?: string | null;
  judged?: boolean;
}

export interface TimeBar {
  kind: "call" | "tool" | "step" | "reward" | "span";
  name: string | null;
  startMs: number;
  endMs: number | null;
  turn: number | null;
  error: string | null;
  agent: string | null;
  depth: number;
}

export interface History {
  index: number;
  turns: number[];
  unknown?: string | null;
  messages: Message[];
}

export interface Rollout extends Answer {
  row: Row;
  parentRolloutId?: string | null;
  previous: string | null;
  next: string | null;
  groupPrevious: string | null;
  groupNext: string | null;
  error: string | null;
  rewards: Reward[];
  metrics: Record<string, unknown>;
  metadata: Record<string, unknown>;
  logs: unknown[];
  tools: unknown[];
  histories: History[];
  /** The history that each of these tabs opens. */
  main: { conversation: number; tokens: number };
  turns: Turn[];
  time: TimeBar[];
  totalMs: number | null;
}

export interface TokenSpan {
  turn: number;
  start: number;
  end: number;
  trained: boolean;
  /** Where other weights begin, and which. */
  weights: { version: string; start: number }[];
  why: { step: string; says: string }[];
}

export interface Range {
  min: number | null;
  max: number | null;
}

/** Tokens that stand for an image, or whatever its kind is. */
export interface Placeholder {
  kind: string;
  start: number;
  length: number;
}

export interface Tokens extends Answer {
  history: number;
  histories?: { index: number; turns: number[]; length: number }[];
  length: number;
  ids: (number | string)[];
  texts: string[] | null;
  mask: number[];
  logprobs: (number | null)[];
  advantages: (number | null)[];
  spans: TokenSpan[];
  placeholders: Placeholder[];
  scale: { logprob: Range | null; advantage: Range | null };
  unknown: string | null;
}

export interface Group extends Answer {
  groupId: string;
  step: number | null;
  members: Row[];
  differsAt: (number | null)[];
  steps: { turn: number; cells: ({ text: string | null; turn: number | null } | null)[] }[];
  advantage: {
    name: string;
    rewards: (number | null)[];
    baseline: number | null;
    std: number | null;
    advantages: (number | null)[];
    says: string[];
  } | null;
  why: string | null;
}

export interface Option {
  name: string;
  label: string;
  kind: "choice" | "number" | "text";
  /** Of a text they are examples. */
  choices: string[];
  default: string | null;
  value: string | null;
  help: string | null;
}

export interface Plan extends Answer {
  options: Option[];
  /** What has to be chosen before anything can be trained. */
  problem: string | null;
  trajectories: { read: number; trained: number; skipped: number };
  completions: { sampled: number; trained: number };
  /** Of `uncounted` trajectories nobody knows how many tokens were sampled. */
  tokens: { sampled: number | null; trained: number | null; uncounted: number };
  skipped: (Reason & { unit: string; filter: string | null })[];
  report: unknown;
  sums: boolean;
}

/** Differences of a part of the tokens in nats; null where none were compared. */
export interface Figures {
  name: string;
  tokens: number;
  mean: number | null;
  worst: number | null;
  klK1: number | null;
  klK3: number | null;
  outside: number | null;
}

export interface Verification {
  at: string;
  model: string;
  dtype: string;
  /** Null where the rollouts of all versions were compared. */
  policyVersion: string | null;
  datasetChanged: boolean;
  holds: boolean;
  rollouts: number;
  totalRollouts: number;
  completions: number;
  limit: number;
  figures: Figures[];
  diagnoses: {
    name: string;
    where: string;
    tokens: number;
    share: number;
    mean: number;
    meaning: string;
    advice: string;
  }[];
  skipped: { reason: string; count: number }[];
  texts: {
    completions: number;
    equal: number;
    meaning: string | null;
    examples: { rolloutId: string; turn: number; field: string; recorded: string; decoded: string }[];
  } | null;
}

/** Of a file that holds a part of the data there are no sources. */
export interface Verifications extends Answer {
  sources: { name: string; verification: Verification | null }[];
}

export interface Side {
  rollouts: number;
  reward: number | null;
  turns: number | null;
  tokens: number | null;
}

export interface ComparedTask {
  name: string;
  says: string | null;
  left: Side;
  right: Side;
  change: number | null;
  pairs: [string, string][];
}

export interface Comparison extends Answer {
  sides: Record<string, string[]>;
  compared: {
    by: "group" | "name";
    sides: [Side, Side];
    onlyLeft: number;
    onlyRight: number;
    total: number;
    tasks: ComparedTask[];
  } | null;
}

export interface Words {
  kind: "same" | "left" | "right";
  text: string;
}

export interface Pair extends Answer {
  rows: [Row, Row];
  messages: { roles: [string | null, string | null]; same: boolean; words: Words[] }[];
  differsAt: number | null;
}

export interface Runs extends Answer {
  runs: { id: string; name: string }[];
  metrics: string[];
}

export interface Series extends Answer {
  series: { run: string; steps: number[]; values: (number | null)[] }[];
}

export interface Tasks extends Answer {
  total: number;
  tasks: { name: string; steps: number; rollouts: number }[];
}

export interface TaskOverSteps extends Answer {
  name: string;
  total: number;
  steps: {
    step: number;
    run: string;
    rollouts: number;
    reward: number | null;
    answers: {
      key: string;
      rolloutId: string;
      reward: number | null;
      cell: { text: string | null; turn: number } | null;
    }[];
  }[];
}
