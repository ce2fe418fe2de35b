import type { Verification, Verifications } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { hashOf } from "../route";
import { Scroll } from "../text/columns";
import { Failure, Loading } from "../text/unknown";
import { Inline } from "../text/visible";

export function VerifyPage() {
  const { answer, error } = useAnswer<Verifications>("/api/verify");
  if (!answer) return error ? <Failure says={error} /> : <Loading />;
  const { sources } = answer;
  return (
    <>
      <h1>Verification</h1>
      <p class="quiet">Recorded logprobs beside the model’s own: they are equal only if ids, weights and distribution are right.</p>
      {sources.length === 0 && <p>A verification is of a whole dataset, and this file holds a part of one.</p>}
      {sources.map(({ name, verification }) => (
        <>
          {sources.length > 1 && (
            <h2>
              <Inline text={name} />
            </h2>
          )}
          {verification ? (
            <Found of={verification} />
          ) : (
            <p>
              None yet: <code>art-otel verify DATASET --model FOLDER</code> makes one.
            </p>
          )}
        </>
      ))}
    </>
  );
}

function Found({ of }: { of: Verification }) {
  const [columns = [], ...rows] = of.figures;
  return (
    <div class="verification">
      <p class={of.holds ? "good" : of.holds === null ? "notice" : "notice failure"}>{of.verdict}</p>
      <p>
        <Inline text={of.about} />
      </p>
      {of.datasetChanged && <p class="notice">The dataset was written again since: this is of what it was before.</p>}
      {of.diagnoses.map((one) => (
        <section class="notice failure diagnosis">
          <h3>{one.name}</h3>
          <p>
            <Inline text={one.where} /> <span class="quiet">{one.tokens}</span>
          </p>
          <p>{one.meaning}</p>
          <p>
            <b>What to do:</b> {one.advice}
          </p>
        </section>
      ))}
      <Scroll label="The figures in nats">
        <table class="verified">
          <thead>
            <tr>
              {columns.map((name, at) => (
                <th scope="col" class={at > 0 ? "num" : undefined}>
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map(([name = "", ...cells]) => (
              <tr>
                <th scope="row">
                  <Inline text={name} />
                </th>
                {cells.map((cell) => (
                  <td class="num">{cell}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {of.notCompared !== null && (
        <p>
          <Inline text={of.notCompared} />
        </p>
      )}
      {of.texts && (
        <>
          <h2>What the ids say</h2>
          <p>{of.texts.says}</p>
          {of.texts.examples.map(([rolloutId, where, recorded, decoded]) => (
            <p>
              <a href={hashOf(["t"], { q: rolloutId })}>
                <Inline text={rolloutId} />
              </a>
              , {where}: recorded <code><Inline text={recorded} /></code>, the ids say <code><Inline text={decoded} /></code>
            </p>
          ))}
        </>
      )}
    </div>
  );
}
