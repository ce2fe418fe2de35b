import { useEffect, useState } from "preact/hooks";
import { ApiError, isExported } from "./fetch_json";
import { currentGeneration, onGeneration, request } from "./generation";
import type { Answer } from "./types";

export interface Asked<T> {
  answer: T | null;
  error: string | null;
  loading: boolean;
}

/** The state of the dataset on show; a component that reads it is drawn anew when the data changed. */
export function useGeneration(): string | null {
  const [generation, setGeneration] = useState(currentGeneration());
  useEffect(() => onGeneration(setGeneration), []);
  return generation;
}

/**
 * Ask for a path. While a newer state of the same path is on its way, the older stays on show. An answer that is not
 * `final` yet is asked for again. With `keep` an answer of another path stays on show, too, until the new one is there.
 */
export function useAnswer<T extends Answer>(path: string | null, final: (answer: T) => boolean = () => true, keep = false): Asked<T> {
  const generation = useGeneration();
  const [state, setState] = useState<{ path: string | null; answer: T | null; error: string | null }>({
    path: null,
    answer: null,
    error: null,
  });
  useEffect(() => {
    if (path === null) return;
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = (): Promise<void> =>
      request<T>(path, controller.signal).then((answer) => {
        setState({ path, answer, error: null });
        if (!isExported && !final(answer)) timer = setTimeout(() => void ask().catch(() => undefined), 1000);
      });
    ask().catch((error: unknown) => {
      const replaced = error instanceof ApiError && error.status === 409;
      if (controller.signal.aborted || replaced) return;
      const says = error instanceof Error ? error.message : String(error);
      setState((before) => ({ path, answer: before.path === path || keep ? before.answer : null, error: says }));
    });
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [path, generation]);
  const same = state.path === path;
  return { answer: same || keep ? state.answer : null, error: same ? state.error : null, loading: path !== null && !same };
}
