import { useState } from "preact/hooks";
import type { Choice, Run } from "../api/types";
import { count, counted, decimal } from "../format";
import { hashOf } from "../route";
import { visible } from "../text/visible";
import { runHash } from "./filters";
import { AxisLabels, columnsOf, unitOf, useWidth } from "./axis";

export const FAILING = ["never solved", "forgotten", "mostly unsolved"];
const ROW = 15;

/** Tasks over steps: the color is the mean reward, faint where all rewards are equal. */
export function Tasks({ run, chosen }: { run: Run; chosen: Choice }) {
  const { element, width } = useWidth<HTMLDivElement>();
  const [part, setPart] = useState("");
  const { total, counts, shown } = run.tasks;
  const { labels, kind } = run.axis;
  const { left, size } = columnsOf(width, labels.length);
  const cell = Math.max(Math.min(size - 1, 60), 1);
  const means = shown.flatMap(({ cells }) => cells.map(([, mean]) => mean));
  const inUnit = means.every((mean) => mean >= 0 && mean <= 1);
  const [low, high] = inUnit ? [0, 1] : [Math.min(...means), Math.max(...means)];
  const tasks = shown.filter(({ name }) => name.toLowerCase().includes(part.toLowerCase()));
  if (total === 0) return null;
  return (
    <section aria-labelledby="tasks" class="tasks">
      <h2 id="tasks" tabIndex={-1}>
        {labels.length > 1 ? `Tasks × ${unitOf(run.axis)}s` : "Tasks"}{" "}
        <span class="quiet">
          <span class="key low" /> low to <span class="key high" /> high mean reward; faint: no gradient; a cell opens its group
        </span>
      </h2>
      {(shown.length < total || shown.length > 20) && (
        <p class="quiet">
          {shown.length < total && `${count(shown.length)} of ${counted(total, "task")}, the unsolved ones first, then those that changed most. `}
          <input
            type="search"
            aria-label="Find a task"
            placeholder="find a task"
            value={part}
            onInput={(event) => setPart(event.currentTarget.value)}
          />{" "}
          {part !== "" && shown.length < total && tasks.length === 0 && (
            <a href={runHash({ ...chosen, task: part })}>Look for this name in all tasks</a>
          )}
        </p>
      )}
      <div
        ref={element}
        class="map"
        tabIndex={0}
        role="region"
        aria-label="Tasks and their rewards"
        onKeyDown={moveFocus}
      >
        {width > 0 &&
          Object.entries(counts).map(([name, number]) => {
            const rows = tasks.filter((task) => task.kind === name);
            if (rows.length === 0) return null;
            return (
              <>
                <h3>{`${name} · ${counted(number, "task")}`}</h3>
                <svg width={width} height={rows.length * ROW}>
                  {rows.map((task, row) => (
                    <g>
                      <a href={runHash({ ...chosen, task: task.name })} aria-label={`Task ${visible(task.name)}`}>
                        <text x={0} y={row * ROW + 11}>
                          {short(visible(task.name), left)}
                        </text>
                        <title>{visible(task.name)}</title>
                      </a>
                      {task.cells.map(([column, mean, rollouts, flat, group]) => {
                        const says = `${kind} ${labels[column] ?? ""}: ${decimal(mean, 3)}, ${counted(rollouts, "rollout")}${flat ? ", no gradient" : ""}`;
                        const query = { ...chosen, ...(labels.length > 1 && { [kind]: labels[column] ?? "" }) };
                        return (
                          <a
                            tabIndex={-1}
                            href={group === null ? runHash({ ...query, task: task.name }) : hashOf([""], { ...chosen, group })}
                            aria-label={`${visible(task.name)}, ${visible(says)}`}
                          >
                            <rect
                              x={left + (column + 0.5) * size - cell / 2}
                              y={row * ROW + 1}
                              width={cell}
                              height={ROW - 2}
                              fill={color((mean - low) / (high - low || 1))}
                              opacity={flat ? 0.4 : 1}
                            />
                            <title>{`${visible(task.name)}, ${visible(says)}`}</title>
                          </a>
                        );
                      })}
                    </g>
                  ))}
                </svg>
              </>
            );
          })}
        {labels.length > 1 && (
          <svg width={width} height={18}>
            <AxisLabels labels={labels} width={width} y={13} />
          </svg>
        )}
        {tasks.length === 0 && <p class="quiet">No task here has this in its name.</p>}
      </div>
    </section>
  );
}

/** From red to blue: both are seen on a light and on a dark ground, and apart by who sees no red. */
function color(value: number): string {
  const mix = (from: number, to: number) => Math.round(from + (to - from) * Math.min(Math.max(value, 0), 1));
  return `rgb(${mix(203, 47)},${mix(90, 134)},${mix(70, 176)})`;
}

function short(name: string, left: number): string {
  const most = Math.floor((left - 8) / 6.3);
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}

/** Arrow keys go from cell to cell of a task, and from task to task. */
function moveFocus(event: KeyboardEvent): void {
  const [sideways, down] = [{ ArrowLeft: -1, ArrowRight: 1 }[event.key], { ArrowUp: -1, ArrowDown: 1 }[event.key]];
  const link = (event.target as Element).closest("a");
  const row = link?.parentElement;
  if (!link || !row || (sideways === undefined && down === undefined)) return;
  event.preventDefault();
  const map = event.currentTarget as Element;
  const rows = [...map.querySelectorAll("g")];
  const at = [...row.querySelectorAll("a")].indexOf(link);
  const to = sideways === undefined ? rows[rows.indexOf(row as unknown as SVGGElement) + (down ?? 0)]?.querySelector("a") : row.querySelectorAll("a")[at + sideways];
  to?.focus();
}
