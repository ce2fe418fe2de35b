import type { Figures, Verification, Verifications } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { count, counted, decimal, time } from "../format";
import { hashOf } from "../route";
import { Columns, Scroll, type Column } from "../text/columns";
import { Failure, Loading, Value } from "../text/unknown";
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
  return (
    <div class="verification">
      <Verdict of={of} />
      <p>
        <b>
          <Inline text={of.model} />
        </b>
        , computed in {of.dtype}, on {time(of.at)} UTC: {count(of.completions)} completions of {count(of.rollouts)}
        {of.rollouts < of.totalRollouts && ` of ${count(of.totalRollouts)}`} rollouts
        {of.policyVersion !== null && (
          <>
            , all of version <Inline text={of.policyVersion} />
          </>
        )}
        . The limit is a mean of {decimal(of.limit)} nats.
      </p>
      {of.datasetChanged && <p class="notice">The dataset was written again since: this is of what it was before.</p>}
      {of.diagnoses.map((one) => (
        <section class="notice failure diagnosis">
          <h3>{one.name}</h3>
          <p>
            <Inline text={one.where} />{" "}
            <span class="quiet">
              {counted(one.tokens, "token")}, {share(one.share, 0)}, mean {small(one.mean)}
            </span>
          </p>
          <p>{one.meaning}</p>
          <p>
            <b>What to do:</b> {one.advice}
          </p>
        </section>
      ))}
      <FiguresTable rows={of.figures} />
      {of.skipped.length > 0 && (
        <p>
          Not compared:{" "}
          {of.skipped.map(({ reason, count: times }, index) => (
            <>
              {index > 0 && ", "}
              {counted(times, "completion")} (<Inline text={reason} />)
            </>
          ))}
          .
        </p>
      )}
      {of.texts && <Texts of={of.texts} />}
    </div>
  );
}

function Verdict({ of }: { of: Verification }) {
  if (!of.figures[0]?.tokens) return <p class="notice">Nothing could be compared.</p>;
  if (of.holds) return <p class="good">✓ The recorded tokens are this model’s.</p>;
  return (
    <p class="notice failure">
      <strong>Something is off.</strong>{" "}
      {of.diagnoses.length > 0
        ? "Not all recorded logprobs are this model’s."
        : "Some ids do not say what the messages say."}
    </p>
  );
}

function FiguresTable({ rows }: { rows: Figures[] }) {
  const numbers: [string, (row: Figures) => number | null, (value: number) => string][] = [
    ["mean", (row) => row.mean, small],
    ["worst", (row) => row.worst, small],
    ["KL (k1)", (row) => row.klK1, small],
    ["KL (k3)", (row) => row.klK3, small],
    ["outside [0.8, 1.25]", (row) => row.outside, (value) => share(value, 2)],
  ];
  return (
    <Scroll label="The figures in nats">
      <table class="verified">
        <Columns of={["Differences in nats", ["tokens", "num"], ...numbers.map(([name]): Column => [name, "num"])]} />
        <tbody>
          {rows.map((row) => (
            <tr>
              <th scope="row">
                <Inline text={row.name} />
              </th>
              <td class="num">{count(row.tokens)}</td>
              {numbers.map(([, value, as]) => (
                <td class="num">
                  <Value of={value(row)} as={as} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function Texts({ of }: { of: NonNullable<Verification["texts"]> }) {
  return (
    <section aria-labelledby="texts">
      <h2 id="texts">What the ids say</h2>
      <p>
        The ids of {count(of.equal)} of {count(of.completions)} completions say what was recorded.{" "}
        {of.meaning}
      </p>
      {of.examples.length > 0 && (
        <Scroll label="Completions whose ids say something else">
          <table class="beside">
            <Columns of={["Rollout", "Recorded", "The ids say"]} />
            <tbody>
              {of.examples.map((one) => (
                <tr>
                  <th scope="row">
                    <a href={hashOf(["t"], { q: one.rolloutId })}>
                      <Inline text={one.rolloutId} />
                    </a>
                    <p class="quiet">
                      turn {one.turn}, {one.field}
                    </p>
                  </th>
                  <td>
                    <Inline text={one.recorded} />
                  </td>
                  <td>
                    <Inline text={one.decoded} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </section>
  );
}

/** As the command writes it. */
function small(value: number): string {
  return value.toExponential(1);
}

function share(value: number, digits: number): string {
  return `${(100 * value).toFixed(digits)}%`;
}
