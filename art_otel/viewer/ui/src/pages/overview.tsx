import type { ComponentChildren } from "preact";
import { isExported } from "../api/fetch_json";
import type { Info, Overview, Reason } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { count, counted, decimal, percent } from "../format";
import { hashOf, type Query } from "../route";
import { Columns } from "../text/columns";
import { Failure, Loading, Unknown, Value } from "../text/unknown";
import { Inline, visible } from "../text/visible";
import { Account } from "./account";
import { ChosenNote } from "./chosen";
import { Histogram } from "./histogram";
import { Reasons } from "./reasons";
import { ToChoose } from "./to_choose";

export function OverviewPage({ info }: { info: Info | null }) {
  const { answer, error } = useAnswer<Overview>(
    "/api/overview",
    (overview) => overview.judged !== false || Boolean(overview.problem),
  );
  if (!answer) return error ? <Failure says={error} /> : <Loading />;
  // What the table above says already, of as many, is not said again.
  const said = new Map(answer.skipped.map(({ reason, count: times }) => [reason, times]));
  const incomplete = answer.incomplete.filter((row) => said.get(`incomplete: ${row.reason}`) !== row.count);
  return (
    <>
      <h1>{info ? <Inline text={info.sources.length > 4 ? `${info.sources.length} sources` : info.name} /> : "Overview"}</h1>
      {info && info.sources.length > 4 && (
        <p class="quiet">
          <Inline text={info.name} />
        </p>
      )}
      {info?.chosen && <ChosenNote chosen={info.chosen} />}
      {answer.repeated > 0 && (
        <p class="notice">
          {answer.repeated === 1 ? "1 recording is" : `${count(answer.repeated)} recordings are`} in several of these
          sources. Each is shown, counted and trained once, as of the first source that has it.
        </p>
      )}
      {answer.sharedGroups > 0 && (
        <p class="notice">
          {counted(answer.sharedGroups, "group id")} {answer.sharedGroups === 1 ? "is" : "are"} in several sources. Each source has a group of its own, with
          the number of the source behind the id{isExported ? "" : ": "}
          {!isExported && <a href={hashOf(["compare"])}>compare them</a>}.
        </p>
      )}
      <dl class="figures">
        <Figure name="trajectories" href={hashOf(["t"])} number={count(answer.total)} />
        <Figure
          name="complete"
          href={hashOf(["t"], { complete: "yes" })}
          number={count(answer.complete)}
          says={percent(answer.complete, answer.total)}
        />
        <Figure
          name="would train"
          href={hashOf(["plan"])}
          number={
            answer.judged === false && !answer.problem ? (
              <span class="unknown">…</span>
            ) : (
              <Value of={answer.trainable} as={count} why={answer.problem ?? undefined} />
            )
          }
          says={
            answer.trainable === null
              ? answer.problem
                ? ""
                : "being judged"
              : `${percent(answer.trainable, answer.total)}, with the default options`
          }
        />
        <Figure
          name="mean reward"
          href={hashOf(["t"], { sort: "reward", order: "desc" })}
          number={<Value of={answer.rewards.mean} as={(value) => decimal(value)} why="no reward was recorded" />}
          says={answer.rewards.unknown > 0 ? `${count(answer.rewards.unknown)} without one` : "all have one"}
        />
      </dl>
      <div class="columns">
        <section aria-labelledby="rewards">
          <h2 id="rewards">Rewards</h2>
          <Histogram rewards={answer.rewards} />
        </section>
        <section aria-labelledby="statuses">
          <h2 id="statuses">Status</h2>
          <Shares rows={answer.statuses} all={answer.total} query={(name) => ({ status: name })} label="Status" />
          {answer.splits.some(({ name }) => name !== null) && (
            <>
              <h3>Split</h3>
              <Shares rows={answer.splits} all={answer.total} query={(name) => ({ split: name })} label="Split" />
            </>
          )}
        </section>
      </div>
      <section aria-labelledby="skipped">
        <h2 id="skipped">Why trajectories would not train</h2>
        {answer.problem &&
          (answer.judged === false ? (
            <Failure says={answer.problem} />
          ) : (
            <ToChoose
              problem={answer.problem}
              models={answer.models.flatMap(({ name }) => name ?? [])}
              hrefOf={(models) => hashOf(["plan"], { models })}
            />
          ))}
        {answer.judged === false ? (
          !answer.problem && <p class="quiet">The trajectories are being judged…</p>
        ) : (
          <Found rows={answer.skipped} filter="skip" none="All would train with the default options." />
        )}
      </section>
      {(incomplete.length > 0 || answer.incomplete.length === 0) && (
        <section aria-labelledby="incomplete">
          <h2 id="incomplete">What is missing</h2>
          {[...said.keys()].some((reason) => reason.startsWith("incomplete: ")) && (
            <p class="quiet">All that is missing of a trajectory; above, its first reason alone counts.</p>
          )}
          <Found rows={incomplete} filter="reason" none="Every trajectory is complete." />
        </section>
      )}
      {(answer.report || !isExported) && (
        <section aria-labelledby="account">
          <h2 id="account">The conversion’s account</h2>
          <Account report={answer.report} sources={answer.sources.length} />
        </section>
      )}
    </>
  );
}

function Figure({
  name,
  number,
  says,
  href,
}: {
  name: string;
  number: ComponentChildren;
  says?: string;
  href: string;
}) {
  return (
    <div class="figure">
      <dt>{name}</dt>
      <dd>
        <a href={href} class="number">
          {number}
        </a>
        {says && <span class="quiet">{says}</span>}
      </dd>
    </div>
  );
}

function Shares({
  rows,
  all,
  query,
  label,
}: {
  rows: { name: string | null; count: number }[];
  all: number;
  query: (name: string) => Query;
  label: string;
}) {
  return (
    <table class="shares">
      <Columns of={[label, "Trajectories", "Share"]} hidden />
      <tbody>
        {rows.map((row) => (
          <tr>
            <th scope="row">
              {row.name === null && label !== "Split" ? (
                <Unknown why="none was recorded" />
              ) : (
                <a href={hashOf(["t"], query(row.name ?? ""))}>
                  <Inline text={row.name ?? "no split"} />
                </a>
              )}
            </th>
            <td class="num">{count(row.count)}</td>
            <td class="bar">
              <meter
                min={0}
                max={Math.max(all, 1)}
                value={row.count}
                aria-label={visible(`${row.name ?? "unknown"}: ${percent(row.count, all)}`)}
              />
              <span class="quiet">{percent(row.count, all)}</span>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Found({ rows, filter, none }: { rows: Reason[]; filter: string; none: string }) {
  if (rows.length === 0) return <p class="good">✓ {none}</p>;
  return (
    <Reasons
      rows={rows}
      counted="Trajectories"
      href={({ reason }) => hashOf(["t"], { [filter]: reason })}
      number={(row) => count(row.count)}
    />
  );
}
