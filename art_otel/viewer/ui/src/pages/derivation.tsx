import type { Group } from "../api/types";
import { decimal, signed } from "../format";
import { Value } from "../text/unknown";
import { Inline } from "../text/visible";

const SHOWN = 8;

/** Rewards, their baseline, and the number that each member trains with. */
export function Derivation({ advantage }: { advantage: NonNullable<Group["advantage"]> }) {
  return (
    <div class="derivation">
      <div class="chain">
        <div>
          <span class="quiet">rewards</span>
          <span class="numbers">
            {advantage.rewards.map((reward) => (
              <span class="num">
                <Value of={reward} as={(value) => decimal(value)} />
              </span>
            ))}
          </span>
        </div>
        <span class="arrow" aria-label="then">
          →
        </span>
        <div>
          <span class="quiet">baseline</span>
          <span class="num">
            {advantage.baseline === null ? "each its own" : decimal(advantage.baseline)}
          </span>
        </div>
        {advantage.std !== null && (
          <div>
            <span class="quiet">deviation</span>
            <span class="num">{decimal(advantage.std)}</span>
          </div>
        )}
        <span class="arrow" aria-label="then">
          →
        </span>
        <div>
          <span class="quiet">advantages ({advantage.name})</span>
          <span class="numbers">
            {advantage.advantages.map((value) => (
              <span class={`num ${value === null || value === 0 ? "" : value > 0 ? "plus" : "minus"}`}>
                <Value of={value} as={signed} />
              </span>
            ))}
          </span>
        </div>
      </div>
      <Sentences says={advantage.says.slice(0, SHOWN)} />
      {advantage.says.length > SHOWN && (
        <details>
          <summary>{advantage.says.length - SHOWN} more</summary>
          <Sentences says={advantage.says.slice(SHOWN)} />
        </details>
      )}
    </div>
  );
}

function Sentences({ says }: { says: string[] }) {
  return (
    <ul>
      {says.map((sentence) => (
        <li>
          <Inline text={sentence} />
        </li>
      ))}
    </ul>
  );
}
