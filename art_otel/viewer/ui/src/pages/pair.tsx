import type { Info, Pair, Row } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { Status, rolloutHash } from "../list/columns";
import { decimal } from "../format";
import type { Route } from "../route";
import { Failure, Loading, Value } from "../text/unknown";
import { Inline, visible } from "../text/visible";

/** Two rollouts, message by message; what only one of them says is marked. */
export function PairPage({ route, info }: { route: Route; info: Info | null }) {
  const [, left = "", right = ""] = route.parts;
  const { answer: pair, error } = useAnswer<Pair>(`/api/pair/${left}/${right}`);
  if (!pair) return error ? <Failure says={error} ways /> : <Loading />;
  const differs = pair.lines.findIndex((line) => !line.same);
  return (
    <>
      <h1>Two rollouts</h1>
      <p class="quiet">
        {differs < 0
          ? "Their main histories say the same."
          : "What the left one alone says is struck out, what the right one alone says underlined."}
      </p>
      <div class="pair">
        {pair.rows.map((row) => (
          <Head row={row} source={(info?.sources.length ?? 1) > 1} />
        ))}
        {pair.lines.map((line, at) => {
          if (line.same)
            return (
              <div class="pair-message both">
                <span class="tag">{line.role}</span>
                <div class="verbatim">{visible(line.cells[0]?.text ?? "")}</div>
              </div>
            );
          return (["left", "right"] as const).map((side, number) => {
            const Mark = side === "left" ? "del" : "ins";
            if (!line.cells[number]) return <div class="pair-message none" />;
            return (
              <div class={`pair-message${at === differs ? " first" : ""}`}>
                <span class="tag">{line.role}</span>
                {at === differs && <span class="tag">first difference</span>}
                <div class="verbatim">
                  {line.words
                    .filter(({ kind }) => kind === "same" || kind === side)
                    .map(({ kind, text }) => (kind === "same" ? visible(text) : <Mark>{visible(text)}</Mark>))}
                </div>
              </div>
            );
          });
        })}
      </div>
    </>
  );
}

function Head({ row, source }: { row: Row; source: boolean }) {
  return (
    <div class="pair-head">
      <h2>
        <a href={rolloutHash(row)}>
          <Inline text={row.task ?? ""} />{" "}
          <span class="id">
            <Inline text={row.rolloutId} />
          </span>
        </a>
      </h2>
      reward <Value of={row.reward} as={(value) => decimal(value)} why="no reward was recorded" /> <Status row={row} />{" "}
      {source && (
        <span class="tag">
          <Inline text={row.source} />
        </span>
      )}{" "}
      {row.step !== null && <span class="tag">step {row.step}</span>}
    </div>
  );
}
