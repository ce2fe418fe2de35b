import type { ComponentChildren } from "preact";
import type { Row, Texts } from "../api/types";
import { count, decimal, shortId, signed, time } from "../format";
import { hashOf } from "../route";
import { load, save } from "../storage";
import { Unknown, Value } from "../text/unknown";
import { Inline, visible } from "../text/visible";

export interface Column {
  id: string;
  title: string;
  sort?: string;
  number?: boolean;
  /** Of the grid. */
  width: string;
  /** Shown only where the reader chose it. */
  hidden?: boolean;
  cell: (row: Row, texts: Texts | null, list: string) => ComponentChildren;
}

const quiet = <span class="quiet">–</span>;

export const COLUMNS: Column[] = [
  {
    id: "task",
    title: "Task",
    sort: "task",
    width: "minmax(130px, 1.2fr)",
    cell: (row, _texts, list) => (
      <a href={rolloutHash(row, list)} title={visible(row.rolloutId)}>
        <b>
          <Inline text={row.task ?? shortId(row.rolloutId)} />
        </b>
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
  { id: "step", title: "Step", sort: "step", number: true, width: "52px", cell: (row) => row.step ?? quiet },
  { id: "asked", title: "Asked", width: "minmax(120px, 2fr)", cell: (_row, texts) => <Said text={texts?.asked} /> },
  { id: "answer", title: "Last answer", width: "minmax(120px, 2.4fr)", cell: (_row, texts) => <Said text={texts?.answer} end={38} /> },
  {
    id: "reward",
    title: "Reward",
    sort: "reward",
    number: true,
    width: "66px",
    cell: (row) => <Value of={row.reward} as={(value) => decimal(value)} why="no reward was recorded" />,
  },
  {
    id: "advantage",
    title: "Advantage",
    sort: "advantage",
    number: true,
    width: "86px",
    cell: (row) => <Advantage row={row} of={row.advantage} />,
  },
  {
    id: "tokens",
    title: "Tokens",
    sort: "tokens",
    number: true,
    width: "66px",
    cell: (row) => <Value of={row.sampledTokens} as={count} why="no token counts were recorded" />,
  },
  { id: "wrong", title: "Outcome", width: "minmax(130px, 1.6fr)", cell: (row) => <WentWrong row={row} /> },
  {
    id: "rollout",
    title: "Rollout",
    sort: "rollout",
    width: "150px",
    hidden: true,
    cell: (row) => (
      <span class="id" title={visible(row.rolloutId)}>
        <Inline text={shortId(row.rolloutId)} />
      </span>
    ),
  },
  { id: "turns", title: "Turns", sort: "turns", number: true, width: "56px", hidden: true, cell: (row) => <Value of={row.turns} as={count} /> },
  {
    id: "group",
    title: "Group",
    width: "minmax(90px, 1fr)",
    hidden: true,
    cell: (row) =>
      row.groupKey === null ? (
        quiet
      ) : (
        <a href={groupHash(row.groupKey)}>
          <Inline text={row.groupId ?? row.groupKey} />
        </a>
      ),
  },
  { id: "models", title: "Models", width: "minmax(90px, 1fr)", hidden: true, cell: (row) => <Inline text={row.models.join(", ")} /> },
  { id: "version", title: "Policy", width: "70px", hidden: true, cell: (row) => (row.policyVersion === null ? quiet : <Inline text={String(row.policyVersion)} />) },
  { id: "started", title: "Started (UTC)", sort: "started", width: "154px", hidden: true, cell: (row) => <Value of={row.startedAt} as={time} /> },
  { id: "source", title: "Source", width: "minmax(70px, 1fr)", hidden: true, cell: (row) => <Inline text={row.source} /> },
];

/** The columns that the reader chose; what a row is from is news where there are several sources. */
export function chosenColumns(sources: number): Column[] {
  const chosen = load("columns")?.split(",");
  const columns = COLUMNS.filter(({ id, hidden }) => (chosen ? chosen.includes(id) : !hidden || (id === "source" && sources > 1)));
  return columns.length > 0 ? columns : COLUMNS.slice(0, 1);
}

export function chooseColumns(ids: string[] | null): void {
  save("columns", ids && ids.join(","));
}

/** The page of a rollout. `list` is the query of the list that it is in: previous and next go through that. */
export function rolloutHash(row: Row, list = ""): string {
  return hashOf(["r", row.key], { list });
}

/** The members of a group side by side. */
export function groupHash(key: string): string {
  return hashOf([""], { group: key });
}

function Said({ text, end }: { text: string | null | undefined; end?: number }) {
  if (text === undefined) return "";
  if (text === null) return <Unknown why="nobody recorded the message" />;
  // Of an answer its end says most: what does not fit is cut at its start, between words.
  return (
    <span class="said" title={visible(text)}>
      <Inline text={(end === undefined || text.length <= end ? text : `…${text.slice(-end).replace(/^\S{0,12}\s/, "")}`) || "(empty)"} />
    </span>
  );
}

/** The one number with a color: better than its group is blue, worse is red. */
export function Advantage({ row, of }: { row: Row; of: number | null | undefined }) {
  if (of === null || of === undefined) return row.judged === false ? <Unknown why="the rollouts are still being judged" /> : quiet;
  return <span class={of > 0 ? "plus" : of < 0 ? "minus" : "quiet"}>{signed(of)}</span>;
}

/** What went wrong, in a few words, and whether it trains, or why not where that is not the same. */
export function WentWrong({ row }: { row: Row }) {
  if (row.running) return <span class="running">● running</span>;
  const error = row.status === "error" ? (row.failure ?? "error") : row.status === "ok" ? null : row.status;
  return (
    <>
      {error !== null && (
        <span class="bad" title={visible(error)}>
          ✕ <Inline text={error} />{" "}
        </span>
      )}
      {row.cut && <span class="warn">✂ cut </span>}
      {error === null && row.failure !== null && (
        <span class="quiet" title={visible(row.failure)}>
          a failed call{" "}
        </span>
      )}
      {(row.verdict !== "ended on a failed call" || error === null) && <Verdict row={row} short />}
    </>
  );
}

/** Whether it trains, or why not; the short form says the reason alone. */
export function Verdict({ row, short = false }: { row: Row; short?: boolean }) {
  if (row.judged === false) return <Unknown why="the rollouts are still being judged" />;
  const flat = row.trainedTokens !== null && row.trainedTokens === row.flatTokens;
  if (row.verdict === null) return flat ? <span class="quiet">advantage 0{row.flat && `: ${row.flat}`}</span> : <span class="verdict yes">● trains</span>;
  return (
    <span class="verdict no" title={visible([row.verdict, ...row.reasons].join("; "))}>
      ○ {!short && "not trained: "}
      <Inline text={row.verdict.replace(/^incomplete: /, "")} />
    </span>
  );
}
