import { useEffect, useRef, useState } from "preact/hooks";
import type { Overview } from "../api/types";
import { useAnswer } from "../api/use_answer";
import type { Query } from "../route";
import { visible } from "../text/visible";

export const FILTERS = [
  "q",
  "status",
  "complete",
  "reason",
  "skip",
  "completion",
  "split",
  "step",
  "group",
  "model",
  "version",
  "min_reward",
  "max_reward",
  "agent",
  "label",
  "source",
  "plan",
] as const;

const CHIPS = { completion: "skipped completions", plan: "with" };

/** The group in words: its key is base64url of JSON [training step, group id]. */
function groupName(key: string): string {
  try {
    const text = new TextDecoder().decode(
      Uint8Array.from(atob(key.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0)),
    );
    const [step, id] = JSON.parse(text) as [number | null, string];
    return step === null ? id : `${id}, step ${step}`;
  } catch {
    return key;
  }
}

/** One value alone is no choice. */
function several(values: string[]): string[] {
  return values.length > 1 ? values : [];
}

interface Props {
  query: URLSearchParams;
  onChange: (changes: Query) => void;
}

export function Filters({ query, onChange }: Props) {
  const { answer } = useAnswer<Overview>("/api/overview");
  const [open, setOpen] = useState(false);
  const set = FILTERS.filter((name) => name !== "q" && query.has(name)).length;
  const named = (rows: { name: string | null }[] | undefined) =>
    (rows ?? []).flatMap((row) => (row.name === null ? [] : [row.name]));
  return (
    <form class={open ? "filters open" : "filters"} role="search" onSubmit={(event) => event.preventDefault()}>
      <Search value={query.get("q") ?? ""} focus={query.get("focus") === "search"} onChange={onChange} />
      <button type="button" class="more-filters" aria-expanded={open} onClick={() => setOpen(!open)}>
        Filters{set > 0 && ` (${set})`}
      </button>
      <Choice name="status" label="Status" values={named(answer?.statuses)} query={query} onChange={onChange} />
      <Choice name="complete" label="Complete" values={["yes", "no"]} query={query} onChange={onChange} />
      <Choice
        name="skip"
        label="Not trained"
        values={(answer?.skipped ?? []).map((row) => row.reason)}
        query={query}
        onChange={onChange}
      />
      <Choice
        name="reason"
        label="Missing"
        values={(answer?.incomplete ?? []).map((row) => row.reason)}
        query={query}
        onChange={onChange}
      />
      <Choice name="split" label="Split" values={named(answer?.splits)} query={query} onChange={onChange} />
      <Choice name="step" label="Step" values={several((answer?.steps ?? []).map(String))} query={query} onChange={onChange} />
      <Choice
        name="group"
        label="Group"
        values={several((answer?.groups ?? []).map(({ key }) => key))}
        text={groupName}
        query={query}
        onChange={onChange}
      />
      <Choice name="version" label="Policy" values={several(answer?.versions ?? [])} query={query} onChange={onChange} />
      <span class={query.has("min_reward") || query.has("max_reward") ? "choice set" : "choice"}>
        <span>Reward</span>
        <Bound name="min_reward" label="Least reward" query={query} onChange={onChange} />
        <span class="quiet">to</span>
        <Bound name="max_reward" label="Greatest reward" query={query} onChange={onChange} />
      </span>
      <Choice name="model" label="Model" values={several(named(answer?.models))} query={query} onChange={onChange} />
      <Choice name="agent" label="Agent" values={several(named(answer?.agents))} query={query} onChange={onChange} />
      <Choice name="label" label="Label" values={named(answer?.labels)} query={query} onChange={onChange} />
      <Choice name="source" label="Source" values={several(named(answer?.sources))} query={query} onChange={onChange} />
      {(["completion", "plan"] as const).map(
        (name) =>
          query.has(name) && (
            <button
              type="button"
              class="chip"
              onClick={() => onChange({ [name]: null })}
              aria-label={`Remove the filter ${name} ${visible(query.get(name) ?? "")}`}
            >
              {CHIPS[name]}: {visible(query.get(name) ?? "")} ✕
            </button>
          ),
      )}
      {query.get("split") === "" && (
        <button type="button" class="chip" onClick={() => onChange({ split: null })}>
          no split ✕
        </button>
      )}
      {FILTERS.some((name) => query.has(name)) && (
        <button
          type="button"
          class="plain"
          onClick={() => onChange(Object.fromEntries(FILTERS.map((name) => [name, null])))}
        >
          Clear all
        </button>
      )}
    </form>
  );
}

function Search({ value, focus, onChange }: { value: string; focus: boolean; onChange: (changes: Query) => void }) {
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
        placeholder="Search names, ids, texts  ( / )"
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

function Bound({ name, label, query, onChange }: Props & { name: string; label: string }) {
  return (
    <input
      type="number"
      step="any"
      class="bound"
      aria-label={label}
      value={query.get(name) ?? ""}
      onChange={(event) => onChange({ [name]: event.currentTarget.value })}
    />
  );
}

function Choice({
  name,
  label,
  values,
  text = (value) => value,
  query,
  onChange,
}: Props & { name: string; label: string; values: string[]; text?: (value: string) => string }) {
  const value = query.get(name) ?? "";
  const all = value === "" || values.includes(value) ? values : [value, ...values];
  if (all.length === 0) return null;
  return (
    <label class={value ? "choice set" : "choice"}>
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange({ [name]: event.currentTarget.value || null })}>
        <option value="">any</option>
        {all.map((each) => (
          <option value={each}>{visible(text(each))}</option>
        ))}
      </select>
    </label>
  );
}
