// The ids of what the filters leave, as a file that exports and batches take.
import { useState } from "preact/hooks";
import { fetchJson, isExported } from "../api/fetch_json";
import type { Answer } from "../api/types";

interface Selection extends Answer {
  lines: string[];
}

export function Save({ query }: { query: string }) {
  const [says, setSays] = useState("");
  if (isExported) return null;
  const save = async () => {
    setSays("…");
    try {
      const { lines } = await fetchJson<Selection>(`/api/trajectories/ids?${query}`);
      const text = lines.map((line) => `${line}\n`).join("");
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
      link.download = "rollouts.txt";
      link.click();
      URL.revokeObjectURL(link.href);
      setSays(`${lines.length} saved`);
    } catch (error) {
      setSays(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <>
      <button class="plain" onClick={() => void save()}>
        Save ids
      </button>
      <span class="quiet" role="status">
        {says}
      </span>
    </>
  );
}
