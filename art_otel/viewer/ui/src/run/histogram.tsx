import type { Choice, Run } from "../api/types";
import { count, counted, decimal } from "../format";
import { runHash } from "./filters";

/** Where there is one step alone: how many rollouts have which reward. A bar opens them. */
export function Histogram({ rewards, chosen }: { rewards: Run["rewards"]; chosen: Choice }) {
  const { bins, known, unknown } = rewards;
  const most = Math.max(...bins.map((bin) => bin.count), 1);
  return (
    <section aria-labelledby="rewards">
      <h2 id="rewards">
        Rewards{" "}
        <span class="quiet">
          {known === 0
            ? "unknown: no rollout has one; without rewards, training is possible only without advantages (option “advantage”: none)"
            : `of ${counted(known, "rollout")}${unknown > 0 ? `, ${count(unknown)} unknown` : ""}`}
        </span>
      </h2>
      {bins
        .filter((bin) => bin.count > 0)
        .map((bin) => (
          <a class="reward-bar" href={runHash({ ...chosen, min_reward: String(bin.from), max_reward: String(bin.to) }, true)}>
            <span class="num">{bin.from === bin.to ? decimal(bin.from, 3) : `${decimal(bin.from, 3)} to ${decimal(bin.to, 3)}`}</span>
            <i style={{ width: `${(60 * bin.count) / most}%` }} />
            <span class="num">{count(bin.count)}</span>
          </a>
        ))}
    </section>
  );
}
