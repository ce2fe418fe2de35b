// The answers of the API, as art_otel/viewer writes them. Unknown is null, never 0; times are strings of nanoseconds.

export interface Answer {
  generation: string;
}

export interface Info extends Answer {
  name: string;
  sources: string[];
  hasRuns: boolean;
  live: boolean;
  canLabel: boolean;
  /** Of an exported file: how many rollouts are in it, of how many that match, of how many there are. */
  chosen?: { rollouts: number; matching: number; total: number; by: string };
}

/** A part of the page's address that chooses the rollouts that a number is of. */
export type Choice = Record<string, string>;

export interface Series {
  source: string | null;
  split: "train" | "held out";
  rollouts: number[];
  reward: (number | null)[];
  /** Over a tenth of the columns; its ends are the numbers of the answer. */
  smooth: (number | null)[];
  /** The share of groups with a token that teaches something. */
  gradient: (number | null)[] | null;
}

export interface Task {
  name: string;
  kind: string;
  /** Column, mean reward, rollouts, whether nothing of it teaches, and its group where it is one. */
  cells: [number, number, number, boolean, string | null][];
}

/** `count` rollouts have tokens of it; each rollout is in the `rollouts` of one part. */
export interface TrainsPart {
  reason: string;
  count: number;
  means: string;
  helps: string;
  tokens: number;
  rollouts: number;
  /** What leads to the rollouts. */
  query: Choice;
}

export interface Trains {
  sampled: number;
  gradient: number;
  flat: number;
  /** So many rollouts whose tokens nobody counted. */
  uncounted: number;
  rollouts: number;
  trained: number;
  gradientRollouts: number;
  gradientCut: number;
  gradientErrors: number;
  parts: TrainsPart[];
  /** Models or agents that are trained though nobody chose among them. */
  unchosen: { kind: "models" | "agents"; name: string | null; tokens: number }[];
}

export interface Run extends Answer {
  total: number;
  matching: number;
  running: number;
  judged: boolean;
  problem: string | null;
  axis: { kind: "step" | "version" | "source"; labels: string[]; steps: number; size: number };
  series: Series[];
  learned: {
    source: string | null;
    split: string;
    first: number | null;
    last: number | null;
    /** Of so many steps each mean is. */
    over: number;
    queries: (Choice | null)[];
  }[];
  tasks: { total: number; counts: Record<Task["kind"], number>; shown: Task[] };
  trains: Trains | null;
  wrong: {
    error: number;
    failed: number;
    cut: number;
    incomplete: number;
    errors: { text: string | null; count: number }[];
  };
  rewards: { known: number; unknown: number; bins: { from: number; to: number; count: number }[] };
  /** Values to choose from, by the filter. */
  choices: Record<string, string[]>;
  repeated: number;
  sharedGroups: number;
  account: { read: number; quarantined: number } | null;
}

export interface Texts {
  asked: string | null;
  /** What the last tool that failed said. */
  failed: string | null;
  answer: string | null;
}

export interface ReadFirst extends Answer {
  rollouts: (Texts & { row: Row; why: string })[];
}

export interface Metrics extends Answer {
  metrics: { name: string; lines: { run: string; steps: number[]; values: (number | null)[] }[] }[];
}

export interface Row extends Partial<Texts> {
  key: string;
  task: string | null;
  cut: boolean;
  /** What it, or its last failed call, failed with. */
  failure: string | null;
  running: boolean;
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
  turns: number | null;
  sampledTokens: number | null;
  trainedTokens: number | null;
  /** Trained tokens with advantage 0, which teach nothing. */
  flatTokens: number | null;
  /** Why its advantage is 0. */
  flat: string | null;
  advantage: number | null;
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
}

export interface RowPage extends Answer {
  total: number;
  offset: number;
  rows: Row[];
}

/** Messages of several rollouts that stand side by side. */
export interface Line {
  role: string;
  same: boolean;
  cells: ({ text: string; turn: number | null } | null)[];
}

export interface Group extends Answer {
  groupId: string;
  step: number | null;
  members: Row[];
  lines: Line[];
  /** The line of the first decision that parts good from bad. */
  parts: number | null;
  advantage: {
    name: string;
    advantages: (number | null)[];
    formulas: string[];
    /** Rollouts that count in the mean, but are not trained. */
    counted: number;
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
  report: unknown;
}

/** What was found, in words. */
export interface Verification {
  /** Null where nothing could be compared. */
  holds: boolean | null;
  verdict: string;
  about: string;
  datasetChanged: boolean;
  diagnoses: Record<"name" | "where" | "tokens" | "meaning" | "advice", string>[];
  /** The first row are the names of the columns. */
  figures: string[][];
  notCompared: string | null;
  /** Examples: the rollout, where in it, what was recorded, and what the ids say. */
  texts: { says: string; examples: [string, string, string, string][] } | null;
}

/** Of a file that holds a part of the data there are no sources. */
export interface Verifications extends Answer {
  sources: { name: string; verification: Verification | null }[];
}
