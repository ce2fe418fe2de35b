// What the filters leave, as a file: the ids of all, or the rollouts themselves as JSON Lines.
import { useState } from "preact/hooks";
import { fetchJson, isExported } from "../api/fetch_json";
import type { Answer } from "../api/types";

interface Selection extends Answer {
  total: number;
  lines: unknown[];
}

export function Save({ query }: { query: string }) {
  const [says, setSays] = useState("");
  if (isExported) return null;
  const save = async (what: "ids" | "rollouts") => {
    setSays("…");
    try {
      const { total, lines } = await fetchJson<Selection>(`/api/trajectories/saved?what=${what}&${query}`);
      const text = lines.map((line) => `${typeof line === "string" ? line : JSON.stringify(line)}\n`).join("");
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
      link.download = what === "ids" ? "rollouts.txt" : "rollouts.jsonl";
      link.click();
      URL.revokeObjectURL(link.href);
      setSays(lines.length < total ? `the first ${lines.length} of ${total}` : `${total} saved`);
    } catch (error) {
      setSays(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <>
      <button class="plain" onClick={() => void save("ids")}>
        Save ids
      </button>
      <button class="plain" onClick={() => void save("rollouts")}>
        Save JSON Lines
      </button>
      <span class="quiet" role="status">
        {says}
      </span>
    </>
  );
}
