import { decimal } from "../format";
import { hashOf } from "../route";
import { Columns, Scroll, type Column } from "../text/columns";
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
      <Scroll label="The numbers">
        <table class="series">
          <Columns of={[["Step", "num"], ...lines.map((line): Column => [<Inline text={line.name} />, "num"])]} />
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
      </Scroll>
    </details>
  );
}
