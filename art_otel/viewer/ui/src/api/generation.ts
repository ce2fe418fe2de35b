// Which state of the dataset the page shows. Every request names it, so that no page mixes two states.
import { ApiError, fetchJson, isExported } from "./fetch_json";
import type { Answer } from "./types";

type Listener = (generation: string) => void;

let current: string | null = null;
const listeners = new Set<Listener>();

export function currentGeneration(): string | null {
  return current;
}

export function onGeneration(listener: Listener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export function adoptGeneration(generation: string): void {
  if (generation === current) return;
  const first = current === null;
  current = generation;
  if (!first) for (const listener of [...listeners]) listener(generation);
}

/** Ask for a path of the state on show; where the dataset was replaced, show the new one. */
export async function request<T extends Answer>(path: string, signal?: AbortSignal): Promise<T> {
  const asked = current;
  const named =
    isExported || asked === null
      ? path
      : `${path}${path.includes("?") ? "&" : "?"}generation=${encodeURIComponent(asked)}`;
  try {
    const answer = await fetchJson<T>(named, signal);
    adoptGeneration(answer.generation);
    return answer;
  } catch (error) {
    if (error instanceof ApiError && error.status === 409 && error.generation !== null)
      adoptGeneration(error.generation);
    throw error;
  }
}

/** Follow a dataset that grows: a long poll that ends with the page. */
export async function followChanges(): Promise<never> {
  for (;;) {
    try {
      const answer = await fetchJson<Answer>(`/api/changes?generation=${encodeURIComponent(current ?? "")}`);
      adoptGeneration(answer.generation);
    } catch {
      // The server may be restarting: the pages themselves say so when they ask.
      await new Promise((resolve) => setTimeout(resolve, 5000));
    }
  }
}
