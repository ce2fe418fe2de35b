import type { Group } from "../api/types";
import { decimal, signed } from "../format";
import { Inline } from "../text/visible";

/** How the advantages came about, in one line; each step of it as a sentence, folded. */
export function Derivation({ advantage }: { advantage: NonNullable<Group["advantage"]> }) {
  const { name, baseline, std, rewards, advantages, says } = advantage;
  const known = advantages.flatMap((value, at) => (value === null ? [] : [at]));
  const [best = -1, worst = best] = [known[0], known[known.length - 1]];
  const one = (at: number) => `${decimal(rewards[at] ?? 0)} → ${signed(advantages[at] ?? 0)}`;
  return (
    <details class="derivation">
      <summary>
        <b>{name}</b>: reward − {baseline === null ? "the mean of the others" : `mean ${decimal(baseline)}`}
        {std !== null && `, / deviation ${decimal(std)}`}
        {best >= 0 && (
          <span class="num">
            {" "}
            = advantage: {one(best)}
            {worst !== best && `, …, ${one(worst)}`}
          </span>
        )}
      </summary>
      <ul>
        {says.map((sentence) => (
          <li>
            <Inline text={sentence} />
          </li>
        ))}
      </ul>
    </details>
  );
}
