// The exported page has no server: its rows are filtered and sorted here, as /api/trajectories would.
// A text is looked for where the server looks: in ids, names, messages, tools, metadata, logs, errors and labels.
import type { Row, RowPage } from "./types";

const VALUES: Record<string, (row: Row) => number | string | bigint | null> = {
  reward: (row) => row.reward,
  advantage: (row) => row.advantage,
  started: (row) => (row.startedAt === null ? null : BigInt(row.startedAt)),
  turns: (row) => row.turns,
  tokens: (row) => row.sampledTokens,
  task: (row) => row.task,
  rollout: (row) => row.rolloutId,
  step: (row) => row.step,
};

const FILTERS: Record<string, (row: Row, value: string) => boolean> = {
  status: (row, value) => row.status === value,
  complete: (row, value) => row.complete === (value === "yes"),
  wrong: (row, value) =>
    value === "cut"
      ? row.cut
      : value === "failed"
        ? row.failure !== null && row.status !== "error"
        : value === "running"
          ? row.running
          : !row.complete && !row.running,
  error: (row, value) => row.failure === value,
  reason: (row, value) => row.reasons.includes(value),
  why: (row, value) => row.verdict === value || row.completions.includes(value),
  trains: (row, value) => {
    const [trained, flat] = [row.trainedTokens ?? 0, row.flatTokens ?? 0];
    return value === "gradient" ? trained > flat : value === "no" ? trained === 0 : value === "flat" ? flat > 0 : row.flat === value;
  },
  split: (row, value) => (row.split ?? "") === value,
  step: (row, value) => {
    const [first, last = first] = value.split("-");
    return row.step !== null && row.step >= Number(first) && row.step <= Number(last);
  },
  task: (row, value) => row.task === value,
  group: (row, value) => row.groupKey === value || row.groupId === value,
  model: (row, value) => row.models.includes(value),
  version: (row, value) => String(row.policyVersion) === value,
  min_reward: (row, value) => row.reward !== null && row.reward >= Number(value),
  max_reward: (row, value) => row.reward !== null && row.reward <= Number(value),
  agent: (row, value) => row.agents.includes(value),
  source: (row, value) => row.source === value,
  label: (row, value) => row.labels.includes(value),
};

const SEARCHED = new Set(
  "rolloutId task name groupId error metadata logs label explanation text result".split(" "),
);

/** The texts of a trajectory, in lower case. */
export function textsOf(value: unknown, inside = false): string {
  if (typeof value === "string") return inside ? `${value}\n`.toLowerCase() : "";
  if (Array.isArray(value)) return value.map((each) => textsOf(each, inside)).join("");
  if (typeof value !== "object" || value === null) return "";
  return Object.entries(value)
    .map(([name, each]) => textsOf(each, inside || SEARCHED.has(name)))
    .join("");
}

export function selectRows(
  generation: string,
  all: Row[],
  query: URLSearchParams,
  texts: (row: Row) => string,
): RowPage {
  const filters = Object.entries(FILTERS).filter(([name]) => query.has(name));
  const searched = (query.get("q") ?? "").toLowerCase();
  const rows = all.filter(
    (row) =>
      filters.every(([name, matches]) => matches(row, query.get(name) ?? "")) &&
      (searched === "" || texts(row).includes(searched)),
  );
  const value = VALUES[query.get("sort") ?? ""];
  const sign = query.get("order") === "desc" ? -1 : 1;
  if (value)
    rows.sort(
      (a, b) => compare(value(a), value(b), sign) || compare(a.advantage, b.advantage, 1) || compare(a.step, b.step, -1),
    );
  const offset = Number(query.get("offset") ?? 0);
  return {
    generation,
    total: rows.length,
    offset,
    rows: rows.slice(offset, offset + Number(query.get("limit") ?? 100)),
  };
}

function compare(a: number | string | bigint | null, b: number | string | bigint | null, sign: number): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  return a < b ? -sign : a > b ? sign : 0;
}
