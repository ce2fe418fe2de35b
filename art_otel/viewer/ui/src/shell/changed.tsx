import { useEffect, useState } from "preact/hooks";
import { onGeneration } from "../api/generation";

/** Says that the data on show was replaced. The reader's place stays. */
export function Changed() {
  const [at, setAt] = useState<string | null>(null);
  useEffect(() => onGeneration(() => setAt(new Date().toLocaleTimeString("en-GB"))), []);
  return (
    <div class="changed" role="status">
      {at && (
        <p class="notice">
          The dataset changed at {at}; this page shows its new state.{" "}
          <button class="plain" onClick={() => setAt(null)}>
            Hide
          </button>
        </p>
      )}
    </div>
  );
}
