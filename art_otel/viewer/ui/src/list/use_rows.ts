// Rows of a list that may have 100,000: pages of 100 are asked for when they come into view, and kept.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, isExported } from "../api/fetch_json";
import { currentGeneration, request } from "../api/generation";
import type { Row, RowPage } from "../api/types";
import { useGeneration } from "../api/use_answer";

const PAGE = 100;

interface Pages {
  query: string;
  total: number | null;
  error: string | null;
  pages: Map<number, { generation: string; rows: Row[] }>;
  asked: Map<number, string | null>;
  patience: number;
}

export interface Rows {
  total: number | null;
  error: string | null;
  row: (index: number) => Row | null;
}

function empty(query: string): Pages {
  return { query, total: null, error: null, pages: new Map(), asked: new Map(), patience: 1000 };
}

export function useRows(query: string, first: number, last: number): Rows {
  const generation = useGeneration();
  const [, draw] = useState(0);
  const state = useRef(empty(query));
  if (state.current.query !== query) state.current = empty(query);
  const pages = state.current;
  const from = Math.floor(first / PAGE);
  const to = Math.floor(Math.max(last, first) / PAGE);
  useEffect(() => {
    // While someone drags the bar over thousands of rows only where they stop is asked for.
    const timer = setTimeout(
      () => {
        for (let page = from; page <= to; page++) void load(pages, page, () => draw((count) => count + 1));
      },
      pages.total === null ? 0 : 30,
    );
    return () => clearTimeout(timer);
  }, [pages, from, to, generation]);
  return {
    total: pages.total,
    error: pages.error,
    row: (index) => pages.pages.get(Math.floor(index / PAGE))?.rows[index % PAGE] ?? null,
  };
}

/** Ask again for rows that were not judged yet. */
function reload(state: Pages, page: number, done: () => void): Promise<void> {
  const held = state.pages.get(page);
  if (held) state.pages.set(page, { ...held, generation: "" });
  return load(state, page, done);
}

async function load(state: Pages, page: number, done: () => void): Promise<void> {
  const generation = currentGeneration();
  const held = state.pages.get(page);
  if ((held && held.generation === generation) || (state.asked.has(page) && state.asked.get(page) === generation))
    return;
  state.asked.set(page, generation);
  try {
    const separator = state.query ? "&" : "";
    const answer = await request<RowPage>(
      `/api/trajectories?${state.query}${separator}offset=${page * PAGE}&limit=${PAGE}`,
    );
    state.total = answer.total;
    state.error = null;
    state.pages.set(page, { generation: answer.generation, rows: answer.rows });
    if (!isExported && answer.rows.some((row) => row.judged === false)) {
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
