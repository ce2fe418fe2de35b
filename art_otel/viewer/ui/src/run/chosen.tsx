import type { Info } from "../api/types";
import { count, counted } from "../format";
import { Inline } from "../text/visible";

type Chosen = NonNullable<Info["chosen"]>;

/** What an exported file holds of the data that it was made of: how many rollouts, and by which options. */
export function ChosenNote({ chosen }: { chosen: Chosen }) {
  const { rollouts, matching, total, by } = chosen;
  if (rollouts === total) return <p class="quiet">This file holds all {counted(total, "rollout")} of the data.</p>;
  return (
    <p class="notice">
      This file holds <b>{count(rollouts)}</b> of {counted(total, "rollout")}
      {by !== "" && (
        <>
          , chosen by{" "}
          <code>
            <Inline text={by} />
          </code>
        </>
      )}
      {rollouts < matching && (by === "" ? ": the first" : `, the first of ${count(matching)}`)}. All numbers here are of
      these {count(rollouts)}.
    </p>
  );
}
