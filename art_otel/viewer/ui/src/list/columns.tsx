import type { ComponentChildren } from "preact";
import { isAnswered } from "../api/fetch_json";
import type { Row } from "../api/types";
import { count, decimal, duration, rewardClass, shortId, time } from "../format";
import { hashOf } from "../route";
import { Unknown, Value } from "../text/unknown";
import { Inline, visible } from "../text/visible";

export interface Column {
  id: string;
  title: string;
  sort?: string;
  number?: boolean;
  cell: (row: Row) => ComponentChildren;
}

const COLUMNS: Column[] = [
  {
    id: "name",
    title: "Rollout",
    sort: "name",
    cell: (row) => (
      <a href={hashOf(["r", row.key])} title={visible(row.rolloutId)}>
        {row.name && (
          <b>
            <Inline text={row.name} />
          </b>
        )}{" "}
        <span class="id">
          <Inline text={row.name === null ? row.rolloutId : shortId(row.rolloutId)} />
        </span>
        {row.attempt !== null && row.attempt > 0 && <span class="quiet"> attempt {row.attempt}</span>}
        {row.labels.map((label) => (
          <span class="given-label">
            <Inline text={label} />
          </span>
        ))}
        {row.note !== "" && (
          <span class="quiet" title={visible(row.note)}>
            {" "}
            ✎ note
          </span>
        )}
      </a>
    ),
  },
  { id: "status", title: "Status", cell: (row) => <Status row={row} /> },
  {
    id: "reward",
    title: "Reward",
    sort: "reward",
    number: true,
    cell: (row) => <Value of={row.reward} as={rewardOf} why="no reward was recorded" />,
  },
  { id: "verdict", title: "Would train", cell: (row) => <Verdict row={row} short /> },
  {
    id: "trained",
    title: "Trained",
    sort: "trained",
    number: true,
    cell: (row) => <Value of={row.trainedTokens} as={count} why="no token ids were recorded" />,
  },
  {
    id: "tokens",
    title: "Sampled",
    sort: "tokens",
    number: true,
    cell: (row) => <Value of={row.sampledTokens} as={count} why="no token counts were recorded" />,
  },
  { id: "turns", title: "Turns", sort: "turns", number: true, cell: (row) => <Value of={row.turns} as={count} /> },
  { id: "calls", title: "Calls", sort: "calls", number: true, cell: (row) => <Value of={row.calls} as={count} /> },
  {
    id: "step",
    title: "Step",
    sort: "step",
    number: true,
    cell: (row) => (row.step === null ? <span class="quiet">–</span> : count(row.step)),
  },
  {
    id: "group",
    title: "Group",
    cell: (row) =>
      row.groupKey === null ? (
        <span class="quiet">–</span>
      ) : (
        <a href={groupHash(row.groupKey)}>
          <Inline text={row.groupId ?? row.groupKey} />
        </a>
      ),
  },
  { id: "source", title: "Source", cell: (row) => <Inline text={row.source} /> },
  { id: "started", title: "Started (UTC)", sort: "started", cell: (row) => <Value of={row.startedAt} as={time} /> },
  {
    id: "duration",
    title: "Took",
    sort: "duration",
    number: true,
    cell: (row) => <Value of={row.durationMs} as={duration} why="it has no end" />,
  },
];

/** The page of a group; where a file holds a part of it, that part in the list. */
export function groupHash(key: string): string {
  return isAnswered(`/api/groups/${key}`) ? hashOf(["g", key]) : hashOf(["t"], { group: key });
}

export function rewardOf(value: number) {
  return <b class={rewardClass(value)}>{decimal(value)}</b>;
}

/** The columns of the data: what a row is from is no news where all are from one source. */
export function columnsOf(sources: number): Column[] {
  return sources > 1 ? COLUMNS : COLUMNS.filter(({ id }) => id !== "source");
}

export function Status({ row }: { row: Row }) {
  const bad = row.status === "error";
  return (
    <span class={`status ${bad ? "bad" : row.status === "ok" ? "fine" : "open"}`}>
      {bad ? "✕" : row.status === "ok" ? "✓" : "◌"} <Inline text={row.status} />
    </span>
  );
}

/** Whether it trains, or why not; the short form leaves out what every reason of an incomplete one begins with. */
export function Verdict({ row, short = false }: { row: Row; short?: boolean }) {
  if (row.judged === false) return <Unknown why="the trajectories are still being judged" />;
  return row.verdict === null ? (
    <span class="verdict yes">● trains</span>
  ) : (
    <span class="verdict no" title={visible([row.verdict, ...row.reasons].join("; "))}>
      ○ <Inline text={short ? row.verdict.replace(/^incomplete: /, "") : row.verdict} />
    </span>
  );
}
