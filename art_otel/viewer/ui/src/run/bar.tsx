import { useEffect, useRef, useState } from "preact/hooks";
import type { Choice, Run } from "../api/types";
import { counted } from "../format";
import { visible } from "../text/visible";
import { FILTERS, chosenBy, runHash, saidFilter } from "./filters";

interface Props {
  run: Run | null;
  query: URLSearchParams;
  isList: boolean;
  onChange: (changes: Record<string, string | null>) => void;
}

const OUTCOMES: Choice[] = [{ wrong: "cut" }, { wrong: "failed" }, { wrong: "incomplete" }, { wrong: "running" }];
const VERDICTS: Choice[] = [{ trains: "gradient" }, { trains: "flat" }, { trains: "no" }];

/** What chooses the rollouts: each filter with a way to remove it, one choice to add one, and a search. */
export function Bar({ run, query, isList, onChange }: Props) {
  const chosen = chosenBy(query, []);
  const names = FILTERS.filter((name) => name !== "q" && name in chosen);
  const all = { ...chosenBy(query), ...(query.has("sort") && { sort: query.get("sort") ?? "", order: query.get("order") ?? "" }) };
  return (
    <form class="bar" role="search" onSubmit={(event) => event.preventDefault()}>
      {names.map((name) => (
        <button
          type="button"
          class="chip"
          aria-label={`Remove the filter ${visible(saidFilter(name, chosen[name] ?? ""))}`}
          onClick={() => onChange({ [name]: null })}
        >
          <span>{visible(saidFilter(name, chosen[name] ?? ""))}</span> ×
        </button>
      ))}
      <Add run={run} onChange={onChange} />
      {names.length + Number("q" in chosen) > 1 && (
        <button
          type="button"
          class="plain"
          onClick={() => onChange(Object.fromEntries(FILTERS.map((name) => [name, null])))}
        >
          Clear all
        </button>
      )}
      <a class="count" href={runHash(all, !isList)} role="button" aria-expanded={isList}>
        {run ? counted(run.matching, "rollout") : "…"} {isList ? "▾" : "▸"}
      </a>
      {run !== null && run.running > 0 && <span class="running">● {run.running} running</span>}
      <Search value={query.get("q") ?? ""} focus={query.get("focus") === "search"} onChange={onChange} />
    </form>
  );
}

function Add({ run, onChange }: Pick<Props, "run" | "onChange">) {
  const choices = Object.entries(run?.choices ?? {}).map(
    ([name, values]): [string, Choice[]] => [name, values.map((value) => ({ [name]: value }))],
  );
  return (
    <select
      class="add"
      aria-label="Add a filter"
      value=""
      onChange={(event) => {
        const added = new URLSearchParams(event.currentTarget.value);
        event.currentTarget.value = "";
        onChange(Object.fromEntries(added));
      }}
    >
      <option value="">+ filter</option>
      {[...choices, ["what went wrong", OUTCOMES] as const, ["what trains", VERDICTS] as const].map(([name, values]) => (
        <optgroup label={name}>
          {values.map((value) => (
            <option value={new URLSearchParams(value).toString()}>
              {visible(Object.entries(value).map((pair) => (pair[0] === name ? pair[1] : saidFilter(...pair))).join())}
            </option>
          ))}
        </optgroup>
      ))}
    </select>
  );
}

function Search({ value, focus, onChange }: { value: string; focus: boolean; onChange: Props["onChange"] }) {
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (!focus) return;
    input.current?.focus();
    onChange({ focus: null });
  }, [focus]);
  return (
    <label class="search">
      <span class="hidden">Search in names, ids and texts</span>
      <input
        ref={input}
        type="search"
        placeholder="/ search"
        value={text}
        onInput={(event) => {
          const typed = event.currentTarget.value;
          setText(typed);
          clearTimeout(timer.current);
          timer.current = setTimeout(() => onChange({ q: typed }), 200);
        }}
      />
    </label>
  );
}
