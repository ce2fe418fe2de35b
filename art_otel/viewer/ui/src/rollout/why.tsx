import { signed } from "../format";
import { Value } from "../text/unknown";
import { Inline } from "../text/visible";
import { tokenText, useTokens } from "./tokens";
import type { Turn } from "./types";

interface Props {
  path: string;
  turn: Turn;
  /** A token of the turn, counted from the first of its context. */
  index: number | null;
  onClose: () => void;
}

/** Says of a message or of one of its tokens why it is trained, and with which number: mask, credit, advantage, option. */
export function Why({ path, turn, index, onClose }: Props) {
  const { tokens, answer, error } = useTokens(path, turn.turn);
  const at = index === null || !tokens ? null : index - tokens.context.length;
  const isTrained = at === null ? (tokens?.mask.some(Boolean) ?? false) : Boolean(tokens?.mask[at]);
  return (
    <aside class="why" aria-label="Why">
      <h2>
        Why{" "}
        <button class="icon" aria-label="Close" onClick={onClose}>
          ✕
        </button>
      </h2>
      <div aria-live="polite">
        <p class={isTrained ? "verdict yes" : "verdict no"}>
          {index !== null && tokens && (
            <code>
              <Inline text={tokenText(tokens, index)} />
            </code>
          )}{" "}
          {isTrained ? "● trained" : "○ not trained"}
        </p>
        {tokens && at !== null && index !== null && (
          <dl class="facts">
            <Fact name="Token">{tokens.start + at}</Fact>
            <Fact name="Id">{at < 0 ? tokens.context[index] : tokens.ids[at]}</Fact>
            <Fact name="Logprob">
              <Value of={tokens.logprobs[at]} as={signed} why="nothing was sampled, or the recorder kept none" />
            </Fact>
            <Fact name="Advantage">
              <Value
                of={tokens.advantages[at]}
                as={signed}
                why={isTrained ? "no reward or no group" : "a masked token has none"}
              />
            </Fact>
          </dl>
        )}
        {at !== null && at < 0 ? (
          <p>Not sampled here: it stands in the prompt of turn {turn.turn}, so it is context and is masked.</p>
        ) : (
          <ol class="why-steps">
            {tokens?.why.map(({ step, says }) => (
              <li>
                <b>{step}</b> <Inline text={says} />
              </li>
            ))}
          </ol>
        )}
        {!tokens && (
          <p>
            {turn.verdict !== null && <Inline text={`Skipped: ${turn.verdict}. `} />}
            <Inline text={error ?? (answer ? (answer.unknown ?? "The ids of this turn are unknown.") : "Loading…")} />
          </p>
        )}
        {turn.markedUntrained !== null && (
          <p>
            Its call is marked untrained: <Inline text={turn.markedUntrained} />.
          </p>
        )}
        {turn.textUntrained !== turn.tokensUntrained && (
          <p title="Fine-tuning on messages asks for the text, batches of tokens for the ids">
            Text: <Inline text={turn.textUntrained ?? "may be trained"} />.
          </p>
        )}
        {turn.drift && (
          <div class="drift">
            <p>The messages continue, the token ids part at token {turn.drift.at}.</p>
            {(["before", "expected", "actual"] as const).map((name) => (
              <p>
                <b>{name}</b> <code>{turn.drift?.[name].join(" ") || "(nothing)"}</code>
              </p>
            ))}
            {turn.drift.expectedText !== null && <pre>{turn.drift.expectedText}</pre>}
            {turn.drift.actualText !== null && <pre>{turn.drift.actualText}</pre>}
          </div>
        )}
      </div>
    </aside>
  );
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd class="num">{children}</dd>
    </div>
  );
}
