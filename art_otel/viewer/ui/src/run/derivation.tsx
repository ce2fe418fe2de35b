import type { Group } from "../api/types";
import { counted } from "../format";
import { Inline } from "../text/visible";

/** How the advantages of the best and the worst came about; of all of them and in sentences, folded. */
export function Derivation({ advantage }: { advantage: NonNullable<Group["advantage"]> }) {
  const { name, formulas, counted: untrained, says } = advantage;
  return (
    <details class="derivation">
      <summary>
        <b>{name}</b>: {[...new Set([formulas[0], formulas[formulas.length - 1]])].join("; …; ")}
        {untrained > 0 && `; ${counted(untrained, "rollout")} that ${untrained === 1 ? "is" : "are"} not trained (–) ${untrained === 1 ? "counts" : "count"} in the mean`}
      </summary>
      <ul>
        {[...says, ...formulas].map((sentence) => (
          <li>
            <Inline text={sentence} />
          </li>
        ))}
      </ul>
    </details>
  );
}
