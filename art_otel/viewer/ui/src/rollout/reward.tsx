import type { Reward } from "./types";
import { decimal } from "../format";
import { Unknown } from "../text/unknown";
import { Block, Inline } from "../text/visible";

/** One reward, with what it judges in words. */
export function RewardNote({ reward }: { reward: Reward }) {
  return (
    <div class="reward">
      <span class="reward-mark" aria-hidden="true">
        ★
      </span>
      <b>
        <Inline text={reward.name} />
      </b>{" "}
      {reward.value === null ? (
        reward.label === null && <Unknown why="the reward has neither a value nor a label" />
      ) : (
        <span class="num">{decimal(reward.value)}</span>
      )}
      {reward.label !== null && (
        <span>
          {" "}
          <Inline text={reward.label} />
        </span>
      )}
      <span class="quiet">
        {" "}
        on {targetText(reward)}
        {reward.source !== null && reward.source !== "attribute" && (
          <>
            , from <Inline text={reward.source} />
          </>
        )}
      </span>
      {reward.explanation !== null && <Block text={reward.explanation} />}
    </div>
  );
}

export function targetText({ target }: Reward): string {
  if (!target) return "the rollout";
  switch (target.kind) {
    case "step":
      return `step ${target.step ?? "unknown"}`;
    case "call":
      return target.turn === null || target.turn === undefined ? "a call" : `turn ${target.turn}`;
    case "tokens":
      return `tokens ${target.start ?? "?"} to ${target.end ?? "?"} of turn ${target.turn ?? "unknown"}`;
    default:
      return `the ${target.kind}`;
  }
}
