import { useState } from "preact/hooks";
import type { Metrics as Answer } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { decimal } from "../format";
import { Failure, Loading } from "../text/unknown";
import { Inline, visible } from "../text/visible";

const [WIDTH, HEIGHT] = [220, 60];

/** What the trainer wrote to history.jsonl, each metric as a small chart. */
export function Metrics() {
  const [open, setOpen] = useState(false);
  const { answer, error } = useAnswer<Answer>(open ? "/api/metrics" : null);
  return (
    <details class="metrics" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Metrics of the trainer</summary>
      {open && (answer ? <Grid metrics={answer.metrics} /> : error ? <Failure says={error} /> : <Loading />)}
    </details>
  );
}

function Grid({ metrics }: { metrics: Answer["metrics"] }) {
  return (
    <div class="grid">
      {metrics.map(({ name, lines }) => {
        const values = lines.flatMap((line) => line.values.filter((value) => value !== null));
        const steps = lines.flatMap((line) => line.steps);
        const [low, high] = [Math.min(...values), Math.max(...values)];
        const [first, last] = [Math.min(...steps), Math.max(...steps)];
        const point = (step: number, value: number) =>
          `${((WIDTH * (step - first)) / (last - first || 1)).toFixed(1)},${(2 + (HEIGHT - 4) * (1 - (value - low) / (high - low || 1))).toFixed(1)}`;
        const ends = lines.map((line) => line.values[line.values.length - 1] ?? null);
        return (
          <figure>
            <figcaption>
              <Inline text={name} />{" "}
              <b class="num">{ends.map((value) => (value === null ? "unknown" : decimal(value, 3))).join(", ")}</b>
            </figcaption>
            <svg
              viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
              role="img"
              aria-label={visible(`${name} from step ${first} to ${last}: ${decimal(low, 3)} to ${decimal(high, 3)}`)}
            >
              {lines.map((line, index) => (
                <polyline
                  class={`run${index % 8}`}
                  points={line.steps
                    .flatMap((step, at) => {
                      const value = line.values[at];
                      return value === null || value === undefined ? [] : [point(step, value)];
                    })
                    .join(" ")}
                />
              ))}
            </svg>
            <span class="quiet num">
              {decimal(low, 3)} to {decimal(high, 3)}
            </span>
          </figure>
        );
      })}
    </div>
  );
}
