import type { Tokens } from "../api/types";
import { decimal, signed } from "../format";
import { Unknown, Value } from "../text/unknown";
import { Inline } from "../text/visible";
import { placeholderAt, placeholderText, tokenText } from "./token_block";

interface Props {
  tokens: Tokens;
  index: number | null;
  conversation: (turn: number) => string;
}

/** Says of one token why it is trained, and with which number: mask, credit, advantage, option. */
export function Why({ tokens, index, conversation }: Props) {
  const placeholder = index === null ? undefined : placeholderAt(tokens, index);
  const span = index === null ? undefined : tokens.spans.find((each) => each.start <= index && index < each.end);
  return (
    <aside class="why" aria-label="Why this token">
      <h2>Why</h2>
      <div aria-live="polite">
        {index === null ? (
          <p class="quiet">Choose a token, or press n for the first trained completion.</p>
        ) : (
          <>
            <p class={`why-token ${tokens.mask[index] ? "trained" : ""}`}>
              {(placeholder || tokens.texts) && (
                <code>
                  <Inline text={placeholder ? placeholderText(placeholder) : tokenText(tokens, index)} />
                </code>
              )}{" "}
              {tokens.mask[index] ? "● trained" : "○ masked"}
            </p>
            <dl class="facts">
              <div>
                <dt>Token</dt>
                <dd class="num">
                  {placeholder ? `${placeholder.start} to ${placeholder.start + placeholder.length - 1}` : index} of{" "}
                  {tokens.length}
                </dd>
              </div>
              <div>
                <dt>Id</dt>
                <dd class="num">{tokens.ids[index] === undefined ? <Unknown /> : String(tokens.ids[index])}</dd>
              </div>
              <div>
                <dt>Logprob</dt>
                <dd class="num">
                  <Value of={tokens.logprobs[index]} as={(value) => decimal(value)} why="the recorder kept none" />
                </dd>
              </div>
              <div>
                <dt>Advantage</dt>
                <dd class="num">
                  <Value
                    of={tokens.advantages[index]}
                    as={signed}
                    why={tokens.mask[index] ? "no reward or no group" : "a masked token has none"}
                  />
                </dd>
              </div>
            </dl>
            {span ? (
              <>
                <p>
                  <a href={conversation(span.turn)}>Turn {span.turn}</a>, token {index - span.start} of{" "}
                  {span.end - span.start}
                </p>
                <ol class="why-steps">
                  {span.why.map(({ step, says }) => (
                    <li>
                      <b>{step}</b> <Inline text={says} />
                    </li>
                  ))}
                </ol>
              </>
            ) : (
              <p>
                {placeholder
                  ? `The model reads the ${placeholder.kind} in the place of these ids. It stands in a prompt, so it is context and is masked.`
                  : "Not sampled here: it stands in a prompt, so it is context and is masked."}
              </p>
            )}
          </>
        )}
      </div>
    </aside>
  );
}
