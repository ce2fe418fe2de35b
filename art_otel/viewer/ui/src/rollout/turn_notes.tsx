import type { Turn } from "../api/types";
import { Inline } from "../text/visible";

const MARKED = "marked untrained";

/** Why a turn is not trained, with what its call is for where a mark is the reason. */
export function whyOf(turn: Turn, reason: string): string {
  return reason === MARKED && turn.markedUntrained !== null ? `${MARKED}: ${turn.markedUntrained}` : reason;
}

/** What the reason does not say: that the call is marked, and the verdict on the text where it is another than on the ids. */
export function TurnNotes({ turn, reason }: { turn: Turn; reason: string | null }) {
  return (
    <>
      {turn.markedUntrained !== null && reason !== MARKED && (
        <span class="quiet">
          <Inline text={whyOf(turn, MARKED)} />
        </span>
      )}
      {turn.textUntrained !== turn.tokensUntrained && (
        <span class="quiet" title="Fine-tuning on messages asks for the text, batches of tokens for the ids">
          text: <Inline text={turn.textUntrained ?? "may be trained"} />
        </span>
      )}
    </>
  );
}
