// Notes, labels and a corrected reward of a rollout; written where the viewer was started with --labels.
import { useEffect, useState } from "preact/hooks";
import { sendJson } from "../api/fetch_json";
import type { Info, Run, Row } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { decimal } from "../format";
import { Block, Inline, visible } from "../text/visible";

interface Change {
  label?: string;
  on?: boolean;
  note?: string;
  reward?: number;
}

export function Labels({ row: seen, info }: { row: Row; info: Info | null }) {
  const [row, setRow] = useState(seen);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => setRow(seen), [seen]);
  const give = (change: Change) =>
    sendJson<{ row: Row; generation: string }>(`/api/labels/${row.key}`, change)
      .then((answer) => (setRow(answer.row), setError(null), true))
      .catch((problem: unknown) => (setError(problem instanceof Error ? problem.message : String(problem)), false));
  const canWrite = info?.canLabel ?? false;
  if (!canWrite && row.labels.length === 0 && row.note === "" && row.correctedReward === null) return null;
  return (
    <section class="labels" aria-label="Labels and note">
      {row.labels.map((label) =>
        canWrite ? (
          <button
            type="button"
            class="chip"
            aria-label={`Take the label ${visible(label)} away`}
            onClick={() => void give({ label, on: false })}
          >
            {visible(label)} ✕
          </button>
        ) : (
          <span class="given-label">
            <Inline text={label} />
          </span>
        ),
      )}
      {row.correctedReward !== null && <span class="quiet">corrected reward {decimal(row.correctedReward)}</span>}
      {canWrite ? <Fields key={row.key} row={row} give={give} /> : row.note !== "" && <Block text={row.note} />}
      {error !== null && (
        <p class="notice failure" role="alert">
          <Inline text={error} />
        </p>
      )}
    </section>
  );
}

function Fields({ row, give }: { row: Row; give: (change: Change) => Promise<boolean> }) {
  const { answer } = useAnswer<Run>("/api/run");
  const [label, setLabel] = useState("");
  const [note, setNote] = useState(row.note);
  const [reward, setReward] = useState("");
  return (
    <>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const change: Change = {};
          if (label.trim() !== "") change.label = label.trim();
          if (note !== row.note) change.note = note;
          if (reward !== "") change.reward = Number(reward);
          if (Object.keys(change).length > 0) void give(change).then((isSaved) => isSaved && (setLabel(""), setReward("")));
        }}
      >
        <input
          type="text"
          maxLength={100}
          list="known-labels"
          placeholder="Add a label"
          aria-label="Add a label"
          value={label}
          onInput={(event) => setLabel(event.currentTarget.value)}
        />
        <datalist id="known-labels">
          {(answer?.choices.label ?? []).map((name) => (
            <option value={name}>{visible(name)}</option>
          ))}
        </datalist>
        <textarea
          rows={1}
          placeholder="Note"
          aria-label="Note"
          value={note}
          onInput={(event) => setNote(event.currentTarget.value)}
        />
        <input
          type="number"
          step="any"
          class="bound"
          placeholder="Reward"
          aria-label="Correct the reward"
          value={reward}
          onInput={(event) => setReward(event.currentTarget.value)}
        />
        <button type="submit">Save</button>
      </form>
    </>
  );
}
