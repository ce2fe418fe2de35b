import type { Info, Reward, Rollout } from "../api/types";
import { count, decimal, duration, json, rewardClass, time } from "../format";
import { Status, Verdict, groupHash } from "../list/columns";
import { hashOf } from "../route";
import { Value } from "../text/unknown";
import { Block, Inline, visible } from "../text/visible";
import { Labels } from "./labels";
import { RewardNote } from "./reward";

export function RolloutHeader({ rollout, info, tab }: { rollout: Rollout; info: Info | null; tab: string }) {
  const { row } = rollout;
  const about = rollout.rewards.filter(
    (reward) =>
      (!reward.target || ["rollout", "agent", "tool"].includes(reward.target.kind)) && !isOnlyTheReward(reward, row.reward),
  );
  return (
    <header class="rollout-head">
      <div class="rollout-title">
        <h1>
          <Inline text={row.name ?? row.rolloutId} />
        </h1>
        <span class="id quiet">
          {row.name !== null && <Inline text={row.rolloutId} />}
          {row.attempt !== null && row.attempt > 0 && ` attempt ${row.attempt}`}
        </span>
        <Steps rollout={rollout} tab={tab} />
      </div>
      <dl class="facts">
        <Fact name="Status">
          <Status row={row} />
        </Fact>
        <Fact name="Reward">
          <Value of={row.reward} as={(value) => <b class={rewardClass(value)}>{decimal(value)}</b>} why="no reward was recorded" />
        </Fact>
        <Fact name="Would train">
          <Verdict row={row} />
        </Fact>
        <Fact name="Trained / sampled tokens">
          <Value of={row.trainedTokens} as={count} why="no token ids were recorded" /> /{" "}
          <Value of={row.sampledTokens} as={count} why="no token counts were recorded" />
        </Fact>
        {row.complete ? (
          <Fact name="Complete">yes</Fact>
        ) : (
          <Fact name="Missing">
            <span class="verdict no">
              ○ <Inline text={row.reasons.join(", ")} />
            </span>
          </Fact>
        )}
        {row.groupKey !== null && (
          <Fact name="Group">
            <a href={groupHash(row.groupKey)}>
              <Inline text={row.groupId ?? row.groupKey} />
            </a>
          </Fact>
        )}
        {rollout.parentRolloutId && (
          <Fact name="Part of">
            <a href={hashOf(["t"], { q: rollout.parentRolloutId })}>
              <Inline text={rollout.parentRolloutId} />
            </a>
          </Fact>
        )}
        {row.step !== null && (
          <Fact name="Step">
            <a href={hashOf(["t"], { step: row.step })}>{count(row.step)}</a>
          </Fact>
        )}
        {info !== null && info.sources.length > 1 && (
          <Fact name="Source">
            <Inline text={row.source} />
          </Fact>
        )}
        {row.split !== null && (
          <Fact name="Split">
            <Inline text={row.split} />
          </Fact>
        )}
        {row.policyVersion !== null && (
          <Fact name="Policy">
            <Inline text={String(row.policyVersion)} />
          </Fact>
        )}
        {row.models.length > 0 && (
          <Fact name="Model">
            <Inline text={row.models.join(", ")} />
          </Fact>
        )}
        <Fact name="Started (UTC)">
          <Value of={row.startedAt} as={time} />
        </Fact>
        <Fact name="Took">
          <Value of={row.durationMs} as={duration} why="it has no end" />
        </Fact>
      </dl>
      {rollout.error !== null && (
        <div class="notice failure">
          <strong>Error.</strong> <Block text={rollout.error} />
        </div>
      )}
      {about.length > 0 && (
        <div class="rewards">
          {about.map((reward) => (
            <RewardNote reward={reward} />
          ))}
        </div>
      )}
      <Labels row={row} info={info} />
      <More rollout={rollout} />
    </header>
  );
}

/** The fact above says it already. */
function isOnlyTheReward({ target, name, value, label, explanation }: Reward, reward: number | null): boolean {
  return target?.kind === "rollout" && name === "reward" && value === reward && label === null && explanation === null;
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Steps({ rollout, tab }: { rollout: Rollout; tab: string }) {
  const links: [string, string, string | null][] = [
    ["Previous rollout (k)", "← previous", rollout.previous],
    ["Next rollout (j)", "next →", rollout.next],
  ];
  if (rollout.row.groupKey !== null)
    links.push(
      ["Previous in group ([)", "← in group", rollout.groupPrevious],
      ["Next in group (])", "in group →", rollout.groupNext],
    );
  return (
    <nav aria-label="Other rollouts" class="steps">
      {links.map(([label, sign, key]) =>
        key === null ? (
          <span class="icon none" aria-hidden="true">
            {sign}
          </span>
        ) : (
          <a href={hashOf(["r", key, tab])} aria-label={label} title={label} class="icon">
            {sign}
          </a>
        ),
      )}
    </nav>
  );
}

function More({ rollout }: { rollout: Rollout }) {
  const parts: [string, unknown, number][] = [
    ["metrics", rollout.metrics, Object.keys(rollout.metrics).length],
    ["metadata", rollout.metadata, Object.keys(rollout.metadata).length],
    ["tools", rollout.tools, rollout.tools.length],
    ["logs", rollout.logs, rollout.logs.length],
  ];
  return (
    <div class="more-facts">
      {parts
        .filter(([, , size]) => size > 0)
        .map(([name, value, size]) => (
          <details>
            <summary>
              {size} {size === 1 ? name.replace(/s$/, "") : name}
            </summary>
            {name === "metrics" || name === "metadata" ? (
              <dl class="pairs">
                {Object.entries(value as Record<string, unknown>).map(([key, each]) => (
                  <div>
                    <dt>{visible(key)}</dt>
                    <dd>
                      <Block text={json(each)} />
                    </dd>
                  </div>
                ))}
              </dl>
            ) : (
              <Block text={json(value)} mono />
            )}
          </details>
        ))}
    </div>
  );
}
