import type { Choice, ReadFirst as Answer } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { rolloutHash } from "../list/columns";
import { decimal, signed } from "../format";
import { Failure, Loading } from "../text/unknown";
import { Inline } from "../text/visible";
import { apiPath } from "./filters";

/** Rollouts worth reading, each with why, with what a tool said that failed, and with its last words. */
export function ReadFirst({ chosen }: { chosen: Choice }) {
  const { answer, error } = useAnswer<Answer>(apiPath("run/read", chosen));
  return (
    <section aria-labelledby="read" class="read">
      <h2 id="read">Read these first</h2>
      {error ? <Failure says={error} /> : !answer && <Loading />}
      {answer?.rollouts.length === 0 && <p class="quiet">There is none.</p>}
      {answer?.rollouts.map(({ row, why, failed, answer: last }) => (
        <div class="first">
          <a href={rolloutHash(row)}>
            <Inline text={row.task ?? row.rolloutId} />
          </a>{" "}
          <span class="quiet num">
            {why}
            {row.step !== null && ` · step ${row.step}`} · {row.reward === null ? "no reward" : `reward ${decimal(row.reward)}`}
            {row.advantage !== null && row.advantage !== 0 && ` · advantage ${signed(row.advantage)}`}
          </span>
          <p>
            {row.failure !== null && row.status === "error" ? (
              <span class="bad">
                ✕ <Inline text={row.failure} />
              </span>
            ) : (
              <>
                {failed !== null && (
                  <span class="bad">
                    ✕ <Inline text={failed} />{" "}
                  </span>
                )}
                <Inline text={last ?? "nobody recorded what it said"} />
              </>
            )}
          </p>
        </div>
      ))}
    </section>
  );
}
