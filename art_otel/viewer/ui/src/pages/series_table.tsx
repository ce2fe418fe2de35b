import { decimal } from "../format";
import { hashOf } from "../route";
import { Value } from "../text/unknown";
import { Inline } from "../text/visible";
import type { Line } from "./chart";

/** The chart's numbers, as recorded; each step leads to its trajectories. */
export function SeriesTable({ lines, metric }: { lines: Line[]; metric: string }) {
  const steps = [...new Set(lines.flatMap((line) => line.steps))].sort((a, b) => a - b);
  return (
    <details open={steps.length <= 20}>
      <summary>
        <Inline text={metric} /> as numbers, not smoothed
      </summary>
      <div class="scroll" tabIndex={0} role="region" aria-label="The numbers">
        <table class="series">
          <thead>
            <tr>
              <th scope="col" class="num">
                Step
              </th>
              {lines.map((line) => (
                <th scope="col" class="num">
                  <Inline text={line.name} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {steps.map((step) => (
              <tr>
                <th scope="row" class="num">
                  <a href={hashOf(["t"], { step: String(step) })}>{step}</a>
                </th>
                {lines.map((line) => {
                  const index = line.steps.indexOf(step);
                  return (
                    <td class="num">
                      {index < 0 ? (
                        <span class="quiet">–</span>
                      ) : (
                        <Value of={line.values[index]} as={(value) => decimal(value)} />
                      )}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}
