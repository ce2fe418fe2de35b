import { useState } from "preact/hooks";
import { isExported } from "../api/fetch_json";
import type { Info } from "../api/types";
import { count, counted, decimal, duration, json, signed, time } from "../format";
import { groupHash, Verdict } from "../list/columns";
import { hashOf, type Query } from "../route";
import { runHash } from "../run/filters";
import { Value } from "../text/unknown";
import { Block, Inline, visible } from "../text/visible";
import { Labels } from "./labels";
import { rowsOf, signOf } from "./outline";
import { RewardNote } from "./reward";
import type { Rollout } from "./types";

interface Props {
  rollout: Rollout;
  info: Info | null;
  address: (query: Query) => string;
  other: (key: string) => string;
}

/** One line: the task, reward - baseline = advantage, the verdict, what went wrong. Everything else is behind `more`. */
export function Head({ rollout, info, address, other }: Props) {
  const { row, formula, advantage, sameError } = rollout;
  const [more, setMore] = useState(false);
  const wrong = wrongOf(rollout);
  return (
    <header class="rollout-head">
      <div class="rollout-line">
        <h1 title={visible(row.rolloutId)}>
          <Inline text={row.name ?? row.rolloutId} />
        </h1>
        <span class="num sum" title="The reward, and how its advantage came about">
          {row.reward === null ? <span class="quiet">no reward</span> : <>reward <b>{decimal(row.reward)}</b></>}
          {advantage !== null && (
            <span class={advantage > 0 ? "plus" : advantage < 0 ? "minus" : "quiet"}>
              , {formula ?? `advantage ${signed(Number(advantage.toPrecision(3)))}`}
            </span>
          )}
        </span>
        <Verdict row={row} />
        {wrong && (
          <a class="status bad wrong" href={address(wrong.to)} title={visible(wrong.says)}>
            {signOf(wrong.says)} <Inline text={wrong.says} />
          </a>
        )}
        {sameError > 0 && (
          <a class="same-error" href={runHash({ error: row.failure ?? "" }, true)}>
            the same error in {counted(sameError, "other rollout")}
          </a>
        )}
        <span class="steps">
          {([[rollout.groupPrevious, "‹", "Previous in group ([)"], [rollout.groupNext, "›", "Next in group (])"]] as const).map(
            ([key, sign, says]) =>
              key && (
                <a class="icon" href={other(key)} aria-label={says} title={says}>
                  {sign}
                </a>
              ),
          )}
          <button aria-expanded={more} onClick={() => setMore(!more)}>
            more
          </button>
        </span>
      </div>
      {more && <More rollout={rollout} info={info} address={address} />}
      {!more && (info?.canLabel || row.labels.length > 0 || row.note !== "") && <Labels row={row} info={info} />}
    </header>
  );
}

/** What went wrong, in a line, and where: the last failure first, as that ended the rollout. */
function wrongOf(rollout: Rollout): { says: string; to: Query } | null {
  const bad = rowsOf(rollout).filter((row) => row.wrong);
  const [failed, others] = [bad.filter((row) => row.kind === "failed"), bad.filter((row) => row.kind !== "tool")];
  const last = failed.pop() ?? others.pop() ?? bad.pop();
  const more = bad.length > 1 ? ` (${count(bad.length)} marks)` : "";
  if (rollout.error !== null) return { says: rollout.error, to: last?.to ?? {} };
  if (!last) return null;
  return { says: `${last.kind === "turn" ? "" : `${last.name}: `}${last.wrong}${more}`, to: last.to ?? {} };
}

function More({ rollout, info, address }: Omit<Props, "other">) {
  const { row } = rollout;
  const facts: [string, preact.ComponentChildren][] = [
    ["Rollout", <Inline text={row.rolloutId} />],
    ["Status", <Inline text={row.status} />],
    [
      "Trained / sampled tokens",
      <>
        <Value of={row.trainedTokens} as={count} /> / <Value of={row.sampledTokens} as={count} />
      </>,
    ],
    ["Missing", row.complete ? "nothing" : <Inline text={row.reasons.join(", ")} />],
    [
      "Group",
      row.groupKey && (
        <a href={groupHash(row.groupKey)}>
          <Inline text={row.groupId ?? row.groupKey} />
        </a>
      ),
    ],
    [
      "Part of",
      rollout.parentRolloutId && (
        <a href={hashOf(["t"], { q: rollout.parentRolloutId })}>
          <Inline text={rollout.parentRolloutId} />
        </a>
      ),
    ],
    ["Attempt", row.attempt],
    ["Step", row.step],
    ["Split", row.split && <Inline text={row.split} />],
    ["Policy", row.policyVersion === null ? null : <Inline text={String(row.policyVersion)} />],
    ["Models", row.models.length > 0 && <Inline text={row.models.join(", ")} />],
    ["Source", info !== null && info.sources.length > 1 && <Inline text={row.source} />],
    ["Started (UTC)", row.startedAt && time(row.startedAt)],
    ["Took", row.durationMs !== null && duration(row.durationMs)],
  ];
  const values: [string, unknown, number][] = [
    ["metrics", rollout.metrics, Object.keys(rollout.metrics).length],
    ["metadata", rollout.metadata, Object.keys(rollout.metadata).length],
    ["tools", rollout.tools, rollout.tools.length],
    ["logs", rollout.logs, rollout.logs.length],
  ];
  return (
    <>
      <dl class="facts">
        {facts
          .filter(([, value]) => value !== null && value !== false && value !== "")
          .map(([name, value]) => (
            <div>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
      </dl>
      {rollout.error !== null && (
        <div class="notice failure">
          <Block text={rollout.error} />
        </div>
      )}
      {rollout.rewards.map((reward) => (
        <RewardNote reward={reward} />
      ))}
      <Labels row={row} info={info} />
      {values
        .filter(([, , size]) => size > 0)
        .map(([name, value, size]) => (
          <details>
            <summary>
              {size} {size === 1 ? name.replace(/s$/, "") : name}
            </summary>
            <Block text={json(value)} mono />
          </details>
        ))}
      {!isExported && <a href={address({ raw: 1 })}>Raw JSON</a>}
    </>
  );
}
