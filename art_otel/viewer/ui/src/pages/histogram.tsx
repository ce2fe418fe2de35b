import type { Overview } from "../api/types";
import { count, decimal } from "../format";

const [WIDTH, HEIGHT, TOP] = [480, 120, 16];

/** A number at the edge would not be whole if it stood around its bar. */
const ANCHORS = ["start", "middle", "end"];

export function Histogram({ rewards }: { rewards: Overview["rewards"] }) {
  const { bins } = rewards;
  if (rewards.known === 0 || bins.length === 0) {
    return (
      <p class="quiet">
        Unknown: no trajectory has a reward. Without rewards, batches train only with <code>advantage=None</code>.
      </p>
    );
  }
  if (rewards.min !== null && rewards.min === rewards.max) {
    return (
      <p>
        {rewards.known === 1 ? "The only known reward is" : `All ${count(rewards.known)} known rewards are`}{" "}
        <b>{decimal(rewards.min)}</b>
        {rewards.unknown > 0 && <span class="quiet">, {count(rewards.unknown)} unknown</span>}.
      </p>
    );
  }
  const most = Math.max(...bins.map((bin) => bin.count), 1);
  const filled = bins.filter((bin) => bin.count > 0).length;
  const step = WIDTH / bins.length;
  const ranges = bins.map((bin) => `${decimal(bin.from, 3)} to ${decimal(bin.to, 3)}: ${count(bin.count)}`);
  return (
    <figure class="histogram">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT + TOP}`} role="img" aria-label={`Rewards. ${ranges.join("; ")}`}>
        <line class="axis" x1="0" x2={WIDTH} y1={HEIGHT + TOP - 0.5} y2={HEIGHT + TOP - 0.5} />
        {bins.map((bin, index) => {
          const height = bin.count === 0 ? 0 : Math.max((HEIGHT * bin.count) / most, 2);
          const x = index * step;
          return (
            <g>
              <rect x={x + 1} y={TOP + HEIGHT - height} width={Math.max(step - 2, 1)} height={height}>
                <title>{ranges[index]}</title>
              </rect>
              {bin.count > 0 && filled <= 12 && (
                <text
                  x={index === 0 ? x + 1 : index === bins.length - 1 ? WIDTH - 1 : x + step / 2}
                  y={TOP + HEIGHT - height - 4}
                  style={{ textAnchor: ANCHORS[index === 0 ? 0 : index === bins.length - 1 ? 2 : 1] }}
                >
                  {count(bin.count)}
                </text>
              )}
            </g>
          );
        })}
      </svg>
      <figcaption>
        <span>{decimal(bins[0]?.from ?? 0, 3)}</span>
        <span class="quiet">
          {count(rewards.known)} known{rewards.unknown > 0 && `, ${count(rewards.unknown)} unknown`}
        </span>
        <span>{decimal(bins[bins.length - 1]?.to ?? 0, 3)}</span>
      </figcaption>
    </figure>
  );
}
