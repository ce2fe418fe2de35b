import { useMemo } from "preact/hooks";
import type { Drift, Turn } from "../api/types";
import { count } from "../format";
import type { TabProps } from "../pages/rollout";
import { Unknown, Value } from "../text/unknown";
import { Block, Inline } from "../text/visible";
import { lanesOf, type Lane } from "./lanes";
import { Shape } from "./shape";
import { TurnNotes, whyOf } from "./turn_notes";

const WIDTH = 22;

export function TreeTab({ rollout, query, address }: TabProps) {
  const turn = query.has("t") ? Number(query.get("t")) : null;
  const rows = useMemo(() => lanesOf(rollout.turns), [rollout]);
  if (rows.length === 0) return <p class="notice">No call completed, so there are no turns.</p>;
  const lanes = Math.max(...rows.map((row) => row.lane)) + 1;
  return (
    <ol class="tree" aria-label="Turns">
      {rows.map((row) => (
        <li class={row.turn.turn === turn ? "chosen" : ""}>
          <Gutter row={row} lanes={lanes} />
          <div class="tree-text">
            <TurnLine turn={row.turn} href={address("conversation", { t: row.turn.turn })} />
            {row.turn.drift && <DriftNote drift={row.turn.drift} />}
          </div>
        </li>
      ))}
    </ol>
  );
}

function Gutter({ row, lanes }: { row: Lane; lanes: number }) {
  const { lane, from, through, continued } = row;
  return (
    <div class="gutter" style={{ width: `${lanes * WIDTH}px` }} aria-hidden="true">
      {through
        .filter((each) => each !== lane || from !== lane)
        .map((each) => (
          <i class="line whole" style={{ left: `${each * WIDTH + WIDTH / 2}px` }} />
        ))}
      {from !== null && from === lane && <i class="line above" style={{ left: `${lane * WIDTH + WIDTH / 2}px` }} />}
      {from !== null && from !== lane && (
        <>
          <i class="line above" style={{ left: `${from * WIDTH + WIDTH / 2}px` }} />
          <i
            class="line across"
            style={{ left: `${from * WIDTH + WIDTH / 2}px`, width: `${(lane - from) * WIDTH}px` }}
          />
        </>
      )}
      {continued && <i class="line below" style={{ left: `${lane * WIDTH + WIDTH / 2}px` }} />}
      <span class="node" style={{ left: `${lane * WIDTH + WIDTH / 2}px` }}>
        <Shape relation={row.turn.relation} />
      </span>
    </div>
  );
}

function TurnLine({ turn, href }: { turn: Turn; href: string }) {
  return (
    <p class="turn-line">
      <span class="relation">{turn.relation}</span>
      <a href={href}>turn {turn.turn}</a>
      {turn.parent !== null && turn.relation !== "continue" && <span class="quiet">after turn {turn.parent}</span>}
      {turn.agent !== null && (
        <span class="tag">
          <Inline text={turn.agent} />
        </span>
      )}
      {turn.rewrittenAt !== null && turn.rewrittenAt !== undefined && (
        <span>the ids continue, the messages differ from message {count(turn.rewrittenAt)} on</span>
      )}
      <TurnVerdict turn={turn} />
      <TurnNotes turn={turn} reason={reasonOf(turn)} />
      {turn.failed && <span class="status bad">✕ failed</span>}
      <span class="quiet">
        <Value of={turn.promptTokens} as={count} /> → <Value of={turn.completionTokens} as={count} /> tokens
        {turn.finishReason !== null && (
          <>
            , <Inline text={turn.finishReason} />
          </>
        )}
      </span>
      {turn.label !== null && (
        <span class="label">
          <Inline text={turn.label} />
        </span>
      )}
    </p>
  );
}

function reasonOf(turn: Turn): string | null {
  return turn.tokensUntrained ?? turn.verdict ?? null;
}

function TurnVerdict({ turn }: { turn: Turn }) {
  const reason = reasonOf(turn);
  if (reason !== null) {
    return (
      <span class="verdict no">
        ○ <Inline text={whyOf(turn, reason)} />
      </span>
    );
  }
  return turn.judged === false ? <Unknown why="not judged yet" /> : <span class="verdict yes">● trains</span>;
}

function DriftNote({ drift }: { drift: Drift }) {
  return (
    <div class="drift">
      <p>
        The messages continue, the token ids part at token <b>{count(drift.at)}</b>.
      </p>
      <dl>
        <dt>Before</dt>
        <dd class="mono">… {drift.before.join(" ")}</dd>
        <dt>Expected</dt>
        <dd class="mono parts">{drift.expected.join(" ") || "(nothing)"}</dd>
        {drift.expectedText !== null && (
          <dd>
            <Block text={drift.expectedText} mono />
          </dd>
        )}
        <dt>Actual</dt>
        <dd class="mono parts">{drift.actual.join(" ") || "(nothing)"}</dd>
        {drift.actualText !== null && (
          <dd>
            <Block text={drift.actualText} mono />
          </dd>
        )}
      </dl>
    </div>
  );
}
