// What chooses the rollouts of the page: names and values in its address, the same for every number on it.
import type { Choice } from "../api/types";
import { hashOf, queryText } from "../route";

export const FILTERS = [
  "q", "split", "step", "task", "group", "model", "agent", "version", "status", "wrong", "error", "complete", "reason",
  "why", "trains", "min_reward", "max_reward", "label", "source",
] as const;

const TRAINS: Record<string, string> = { gradient: "with a gradient", flat: "with advantage 0", no: "not" };
const SAID: Record<string, string> = { why: "not trained", min_reward: "reward ≥", max_reward: "reward ≤", q: "text" };

/** The filters of an address, and the options that decide what trains. */
export function chosenBy(query: URLSearchParams, more: readonly string[] = ["plan"]): Choice {
  const pairs = [...FILTERS, ...more].flatMap((name) => {
    const value = query.get(name);
    return value !== null && (value !== "" || name === "split") ? [[name, value] as const] : [];
  });
  return Object.fromEntries(pairs);
}

/** The first page, or with `list` the list in place of its charts. */
export function runHash(query: Choice, list = false): string {
  return hashOf([list ? "t" : ""], query);
}

export function apiPath(path: string, query: Choice): string {
  const text = queryText(query);
  return `/api/${path}${text && `?${text}`}`;
}

/** A filter as a person says it. The key of a group is its id and step with `~` between. */
export function saidFilter(name: string, value: string): string {
  if (name === "group") {
    const [id = "", step = ""] = value.split("~");
    return `group ${unescaped(id)}${step && `, step ${step}`}`;
  }
  if (name === "trains") return `trains ${TRAINS[value] ?? `with advantage 0, ${value}`}`;
  if (name === "split" && value === "") return "no split";
  if (name === "complete") return value === "yes" ? "complete" : "incomplete";
  if (name === "wrong") return value === "failed" ? "with a failed call" : value;
  if (name === "status" && value === "error") return "ended in an error";
  return `${SAID[name] ?? name} ${value}`;
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll("!", "%"));
  } catch {
    return text;
  }
}

/** What stands in the place of rollouts. */
export function noRollout(isAll: boolean): string {
  return isAll ? "There is no rollout yet." : "No rollout matches. Remove a filter above to see more.";
}
