// Answers come from the exported page where there is one, and then never from the network.
import type { Answer, Row, RowPage } from "./types";
import { selectRows, textsOf } from "./select_rows";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly generation: string | null = null,
  ) {
    super(message);
  }
}

interface Exported {
  generation: string;
  responses: Record<string, Answer>;
}

const element = document.getElementById("art-otel-data");
let exported: Exported | null = null;

export const isExported = element !== null;

/** Read the answers of an exported page, which are compressed, before anything asks for one. */
export async function readExported(): Promise<void> {
  if (!element) return;
  const bytes = Uint8Array.from(atob(element.textContent ?? ""), (character) => character.charCodeAt(0));
  const json = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  exported = (await new Response(json).json()) as Exported;
  element.remove();
}

/** Whether an exported page holds the answer; a server has all. */
export function isAnswered(path: string): boolean {
  return exported === null || path in exported.responses;
}

export async function fetchJson<T extends Answer>(path: string, signal?: AbortSignal): Promise<T> {
  if (exported) return fromExport(exported, path) as T;
  const response = await fetch(path, { signal, headers: { Accept: "application/json" } }).catch((error: unknown) => {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "The server does not answer. Is `art-otel view` still running?");
  });
  const body: unknown = await response.json().catch(() => null);
  if (response.ok && body !== null) return body as T;
  const failure = (body ?? {}) as { error?: string; generation?: string };
  const says =
    response.status === 401
      ? "Open the address that `art-otel view` printed."
      : `The server answered ${response.status}.`;
  throw new ApiError(response.status, failure.error ?? says, failure.generation ?? null);
}

/** Send something that is to be kept. */
export async function sendJson<T>(path: string, value: unknown): Promise<T> {
  const headers = { "Content-Type": "application/json", Accept: "application/json" };
  const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(value) });
  const body: unknown = await response.json().catch(() => null);
  if (response.ok && body !== null) return body as T;
  throw new ApiError(response.status, (body as { error?: string } | null)?.error ?? `The server answered ${response.status}.`);
}

function fromExport({ generation, responses }: Exported, path: string): Answer {
  const exact = responses[path];
  if (exact) return exact;
  const [name, query] = path.split("?") as [string, string | undefined];
  if (name === "/api/trajectories" || name === "/api/run") {
    const pages = Object.keys(responses).filter((each) => each.startsWith("/api/trajectories?"));
    const rows = pages.flatMap((page) => (responses[page] as RowPage).rows);
    const page = selectRows(generation, rows, new URLSearchParams(query), (row) => textOf(responses, row));
    // Numbers are of all rollouts of the file but for how many the filters leave.
    return name === "/api/run" ? ({ ...responses[name], matching: page.total } as Answer) : page;
  }
  // A file has one list, whatever one came from.
  if (query?.startsWith("list=") && !query.includes("&") && responses[name]) return responses[name];
  const inPart = name.startsWith("/api/rollouts/") || name.startsWith("/api/groups/");
  throw new ApiError(
    404,
    responses[name]
      ? "This file holds the default options only. `art-otel view` on the dataset answers others."
      : inPart
        ? "This file was exported without it. `art-otel view` on the dataset has all."
        : "This file was exported without this page.",
  );
}

const texts = new Map<string, string>();

function textOf(responses: Exported["responses"], { key }: Row): string {
  const text = texts.get(key) ?? textsOf(responses[`/api/rollouts/${key}`]);
  texts.set(key, text);
  return text;
}
