import { useState } from "preact/hooks";
import type { TaskOverSteps, Tasks } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { count, decimal } from "../format";
import { go, hashOf, withQuery, type Route } from "../route";
import { Scroll } from "../text/columns";
import { Failure, Loading, Unknown, Value } from "../text/unknown";
import { Inline, visible } from "../text/visible";

/** The rollouts of one name over the steps of training. */
export function TaskSection({ route }: { route: Route }) {
  const [part, setPart] = useState("");
  const path = `/api/runs/tasks?${new URLSearchParams({ q: part }).toString()}`;
  const { answer: tasks } = useAnswer<Tasks>(path);
  const name = route.query.get("task");
  return (
    <section aria-labelledby="task">
      <h2 id="task">One task over steps</h2>
      <div class="token-bar">
        <label class="choice">
          <span>Find a name</span>
          <input type="search" value={part} onInput={(event) => setPart(event.currentTarget.value)} />
        </label>
        <label class="choice">
          <span>Task</span>
          <select
            value={name ?? ""}
            onChange={(event) => go(withQuery(route, { task: event.currentTarget.value }), { replace: true })}
          >
            <option value="">{tasks ? `choose one of ${count(tasks.total)}` : "choose one"}</option>
            {name !== null && !tasks?.tasks.some((task) => task.name === name) && (
              <option value={name}>{visible(name)}</option>
            )}
            {tasks?.tasks.map((task) => (
              <option value={task.name}>
                {visible(task.name)} ({count(task.steps)} steps)
              </option>
            ))}
          </select>
        </label>
      </div>
      {name && <Steps name={name} />}
    </section>
  );
}

function Steps({ name }: { name: string }) {
  const { answer, error } = useAnswer<TaskOverSteps>(`/api/runs/task?${new URLSearchParams({ name }).toString()}`);
  if (!answer) return error ? <Failure says={error} /> : <Loading />;
  const shown = new Set(answer.steps.map((row) => row.step)).size;
  const columns = Math.max(...answer.steps.map((row) => row.answers.length));
  return (
    <>
      {shown < answer.total && (
        <p class="quiet">
          {count(shown)} of {count(answer.total)} steps, at equal distances.
        </p>
      )}
      <Scroll label="The task over steps">
        <table class="beside">
          <thead>
            <tr>
              <th scope="col">Step</th>
              <th scope="col" class="num">
                Mean reward
              </th>
              <th scope="col" colSpan={columns}>
                First answers
              </th>
            </tr>
          </thead>
          <tbody>
            {answer.steps.map((row) => (
              <tr>
                <th scope="row">
                  <a href={hashOf(["t"], { step: row.step })}>{row.step}</a>
                  <span class="quiet">
                    {" "}
                    <Inline text={row.run} />, {count(row.rollouts)} {row.rollouts === 1 ? "rollout" : "rollouts"}
                  </span>
                </th>
                <td class="num">
                  <Value of={row.reward} as={(value) => decimal(value)} why="no reward was recorded" />
                </td>
                {row.answers.map((one) => (
                  <FirstAnswer one={one} />
                ))}
                {row.answers.length < columns && <td colSpan={columns - row.answers.length} />}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}

function FirstAnswer({ one }: { one: TaskOverSteps["steps"][number]["answers"][number] }) {
  return (
    <td>
      <span class="quiet num">
        reward <Value of={one.reward} as={(value) => decimal(value)} why="no reward was recorded" />
      </span>
      <a
        class="cell-text"
        href={hashOf(["r", one.key, "conversation"], { t: one.cell?.turn })}
        title={visible(one.rolloutId)}
      >
        {one.cell === null ? (
          "no answer"
        ) : one.cell.text === null ? (
          <Unknown why="nobody recorded the message" />
        ) : (
          <Inline text={one.cell.text || "(empty)"} />
        )}
      </a>
    </td>
  );
}
