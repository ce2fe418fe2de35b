// Rows of a list that may have 100,000: pages are asked for when they come into view, and kept.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, isExported } from "../api/fetch_json";
import { currentGeneration, request } from "../api/generation";
import type { Answer, Row, Texts } from "../api/types";
import { useGeneration } from "../api/use_answer";

interface Pages<T> {
  path: string;
  size: number;
  total: number | null;
  error: string | null;
  pages: Map<number, { generation: string; rows: T[] }>;
  asked: Map<number, string | null>;
  patience: number;
}

export interface Rows {
  total: number | null;
  error: string | null;
  row: (index: number) => Row | null;
}

export function useRows(query: string, first: number, last: number): Rows {
  const pages = usePages<Row>(`/api/trajectories?${query}`, 100, first, last);
  return { total: pages.total, error: pages.error, row: (index) => rowOf(pages, index) };
}

/** What was asked and said: texts take longer to read than rows, so that only those in view are asked for. */
export function useTexts(query: string | null, first: number, last: number): (index: number) => Texts | null {
  const pages = usePages<Texts>(query === null || isExported ? null : `/api/trajectories/texts?${query}`, 25, first, last);
  return (index) => rowOf(pages, index);
}

function rowOf<T>({ pages, size }: Pages<T>, index: number): T | null {
  return pages.get(Math.floor(index / size))?.rows[index % size] ?? null;
}

function usePages<T>(path: string | null, size: number, first: number, last: number): Pages<T> {
  const generation = useGeneration();
  const [, draw] = useState(0);
  const empty = (): Pages<T> => ({
    path: path ?? "", size, total: null, error: null, pages: new Map(), asked: new Map(), patience: 1000,
  });
  const state = useRef(empty());
  if (state.current.path !== (path ?? "")) state.current = empty();
  const pages = state.current;
  const from = Math.floor(first / size);
  const to = Math.floor(Math.max(last, first) / size);
  useEffect(() => {
    if (path === null) return;
    // While someone drags the bar over thousands of rows only where they stop is asked for.
    const timer = setTimeout(
      () => {
        for (let page = from; page <= to; page++) void load(pages, page, () => draw((count) => count + 1));
      },
      pages.total === null ? 0 : 30,
    );
    return () => clearTimeout(timer);
  }, [pages, from, to, generation]);
  return pages;
}

/** Ask again for rows that were not judged yet. */
function reload<T>(state: Pages<T>, page: number, done: () => void): Promise<void> {
  const held = state.pages.get(page);
  if (held) state.pages.set(page, { ...held, generation: "" });
  return load(state, page, done);
}

async function load<T>(state: Pages<T>, page: number, done: () => void): Promise<void> {
  const generation = currentGeneration();
  const held = state.pages.get(page);
  if ((held && held.generation === generation) || (state.asked.has(page) && state.asked.get(page) === generation))
    return;
  state.asked.set(page, generation);
  try {
    const separator = state.path.endsWith("?") ? "" : "&";
    const answer = await request<Answer & { total: number; rows: T[] }>(
      `${state.path}${separator}offset=${page * state.size}&limit=${state.size}`,
    );
    state.total = answer.total;
    state.error = null;
    state.pages.set(page, { generation: answer.generation, rows: answer.rows });
    if (!isExported && answer.rows.some((row) => (row as { judged?: boolean }).judged === false)) {
      setTimeout(() => void reload(state, page, done), state.patience);
      state.patience = Math.min(state.patience * 1.5, 60_000);
    }
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 409))
      state.error = error instanceof Error ? error.message : String(error);
  } finally {
    state.asked.delete(page);
    done();
  }
}
