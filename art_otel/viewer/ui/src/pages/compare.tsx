import type { ComparedTask, Comparison, Side } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { count, counted, decimal, signed } from "../format";
import { rewardOf } from "../list/columns";
import { go, hashOf, queryText, withQuery, type Route } from "../route";
import { Columns, Scroll } from "../text/columns";
import { Failure, Loading, Value } from "../text/unknown";
import { Inline, visible } from "../text/visible";

/** Two sources, steps, policy versions or models on the tasks that both have. */
export function ComparePage({ route }: { route: Route }) {
  const { query } = route;
  const first = useAnswer<Comparison>("/api/compare");
  const sides = first.answer?.sides ?? {};
  const kind = query.get("kind") ?? Object.keys(sides)[0] ?? "";
  const values = sides[kind] ?? [];
  const left = query.get("left") ?? values[0] ?? "";
  const right = query.get("right") ?? values[values.length - 1] ?? "";
  const asked = kind && left && right ? `?${queryText({ kind, left, right })}` : "";
  const { answer, error } = useAnswer<Comparison>(`/api/compare${asked}`);
  if (!first.answer) return first.error ? <Failure says={first.error} ways /> : <Loading />;
  const kinds = Object.keys(sides);
  const choose = (changes: Record<string, string | null>) => go(withQuery(route, changes), { replace: true });
  const compared = answer?.compared;
  return (
    <>
      <h1>Compare</h1>
      {kinds.length === 0 ? (
        <p class="notice">
          All rollouts are of one source, step, policy version and model. Open two datasets together:{" "}
          <code>art-otel view ONE OTHER</code>.
        </p>
      ) : (
        <form class="filters" onSubmit={(event) => event.preventDefault()}>
          <Choice
            label="Compare two"
            value={kind}
            values={kinds}
            onChange={(value) => choose({ kind: value, left: null, right: null })}
          />
          <Choice label="Before" value={left} values={values} onChange={(value) => choose({ kind, left: value, right })} />
          <Choice label="After" value={right} values={values} onChange={(value) => choose({ kind, left, right: value })} />
        </form>
      )}
      {error && <Failure says={error} />}
      {kinds.length > 0 && !error && !compared && <Loading />}
      {compared && compared.total === 0 && (
        <p class="notice">The two have no task in common: neither an id of a group nor a name of a rollout is in both.</p>
      )}
      {compared && compared.total > 0 && (
        <>
          <p class="quiet">
            {counted(compared.total, "task")} that both have, by the {compared.by === "group" ? "id of the group" : "name of the rollout"}
            {compared.onlyLeft + compared.onlyRight > 0 &&
              `; only before ${count(compared.onlyLeft)}, only after ${count(compared.onlyRight)}`}
            . One {compared.by === "group" ? "id" : "name"} is taken as one task: the first message of a pair shows whether it is. What changed most comes first; a number shows two rollouts word by word.
          </p>
          <Scroll label="Tasks of both sides">
            <table class="compared">
              <Columns of={["Task", ["Rollouts", "num"], ["Reward", "num"], ["Change", "num"], ["Turns", "num"], ["Sampled tokens", "num"], "Side by side"]} />
              <tbody>
                <tr class="all">
                  <th scope="row">all of these</th>
                  <Numbers left={compared.sides[0]} right={compared.sides[1]} />
                  <td />
                </tr>
                {compared.tasks.map((task) => (
                  <Task task={task} />
                ))}
              </tbody>
            </table>
          </Scroll>
          {compared.tasks.length < compared.total && (
            <p class="quiet">The {count(compared.tasks.length)} tasks that changed most are shown.</p>
          )}
        </>
      )}
    </>
  );
}

function Task({ task }: { task: ComparedTask }) {
  return (
    <tr>
      <th scope="row">
        {task.says !== null && task.says !== task.name && (
          <>
            <b>
              <Inline text={task.says} />
            </b>{" "}
          </>
        )}
        <Inline text={task.name} />
      </th>
      <Numbers left={task.left} right={task.right} />
      <td>
        {task.pairs.map(([left, right], index) => (
          <>
            <a href={hashOf(["pair", left, right])} aria-label={visible(`Pair ${index + 1} of ${task.name}`)}>
              {index + 1}
            </a>{" "}
          </>
        ))}
      </td>
    </tr>
  );
}

function Numbers({ left, right }: { left: Side; right: Side }) {
  const change = left.reward === null || right.reward === null ? null : right.reward - left.reward;
  const means = (name: "turns" | "tokens") => (
    <td class="num">
      <Value of={left[name]} as={(value) => decimal(value, 3)} /> → <Value of={right[name]} as={(value) => decimal(value, 3)} />
    </td>
  );
  return (
    <>
      <td class="num">
        {count(left.rollouts)} → {count(right.rollouts)}
      </td>
      <td class="num">
        <Value of={left.reward} as={rewardOf} /> → <Value of={right.reward} as={rewardOf} />
      </td>
      <td class="num">
        <Value
          of={change}
          as={(value) => <b class={value > 0 ? "plus" : value < 0 ? "minus" : "quiet"}>{signed(value)}</b>}
          why="a side has no reward"
        />
      </td>
      {means("turns")}
      {means("tokens")}
    </>
  );
}

function Choice(props: { label: string; value: string; values: string[]; onChange: (value: string) => void }) {
  return (
    <label class="choice">
      <span>{props.label}</span>
      <select value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
        {props.values.map((each) => (
          <option value={each}>{visible(each)}</option>
        ))}
      </select>
    </label>
  );
}
