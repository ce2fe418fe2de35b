import type { Info, Pair, Row, Words } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { rewardOf, Status, Verdict } from "../list/columns";
import { hashOf, type Route } from "../route";
import { Failure, Loading, Value } from "../text/unknown";
import { Inline, visible } from "../text/visible";

/** Two rollouts, message by message; what only one of them says is marked. */
export function PairPage({ route, info }: { route: Route; info: Info | null }) {
  const [, left = "", right = ""] = route.parts;
  const { answer: pair, error } = useAnswer<Pair>(`/api/pair/${left}/${right}`);
  if (!pair) return error ? <Failure says={error} ways /> : <Loading />;
  return (
    <>
      <h1>Two rollouts</h1>
      <p class="quiet">
        {pair.differsAt === null
          ? "Their main histories say the same."
          : `They differ first in message ${pair.differsAt + 1}. What the left one alone says is struck out, what the right one alone says underlined.`}
      </p>
      <div class="pair">
        {pair.rows.map((row) => (
          <Head row={row} source={(info?.sources.length ?? 1) > 1} />
        ))}
        {pair.messages.map((message, index) => (
          <>
            <Message role={message.roles[0]} words={message.words} side="left" first={index === pair.differsAt} />
            <Message role={message.roles[1]} words={message.words} side="right" first={index === pair.differsAt} />
          </>
        ))}
      </div>
    </>
  );
}

function Head({ row, source }: { row: Row; source: boolean }) {
  return (
    <div class="pair-head">
      <h2>
        <a href={hashOf(["r", row.key])}>
          {row.name !== null && (
            <>
              <Inline text={row.name} />{" "}
            </>
          )}
          <span class="id">
            <Inline text={row.rolloutId} />
          </span>
        </a>
      </h2>
      <Value of={row.reward} as={rewardOf} why="no reward was recorded" /> <Status row={row} /> <Verdict row={row} />{" "}
      {source && (
        <span class="tag">
          <Inline text={row.source} />
        </span>
      )}{" "}
      {row.step !== null && <span class="tag">step {row.step}</span>}
    </div>
  );
}

interface Props {
  role: string | null;
  words: Words[];
  side: "left" | "right";
  first: boolean;
}

function Message({ role, words, side, first }: Props) {
  if (role === null) return <div class="pair-message quiet">ended</div>;
  const Mark = side === "left" ? "del" : "ins";
  return (
    <div class={`pair-message${first ? " first" : ""}`}>
      <span class="role">
        <Inline text={role} />
      </span>
      {first && <span class="tag">first difference</span>}
      <div class="verbatim">
        {words
          .filter(({ kind }) => kind === "same" || kind === side)
          .map(({ kind, text }) => (kind === "same" ? visible(text) : <Mark>{visible(text)}</Mark>))}
      </div>
    </div>
  );
}
