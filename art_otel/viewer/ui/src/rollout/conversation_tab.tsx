import { useKeys } from "../keyboard/keys";
import type { Rollout } from "../api/types";
import type { TabProps } from "../pages/rollout";
import { go } from "../route";
import { Conversation } from "./conversation";
import { HistoryChoice } from "./history_choice";

/** The names of who sampled these turns. */
export function agentsOf(rollout: Rollout, turns: number[]): string[] {
  return [...new Set(turns.flatMap((turn) => rollout.turns[turn]?.agent ?? []))];
}

export function ConversationTab({ rollout, query, address }: TabProps) {
  const turn = query.has("t") ? Number(query.get("t")) : null;
  // A link to a turn alone leads to where it is trained: the first history that has it.
  const named =
    query.has("h") || turn === null
      ? Number(query.get("h") ?? rollout.main.conversation)
      : rollout.histories.findIndex(({ turns }) => turns.includes(turn));
  const history = rollout.histories[named] ?? rollout.histories[0];
  const beside = (step: number) => {
    const next = rollout.histories[(history?.index ?? 0) + step];
    if (next) go(address("conversation", { h: next.index }));
  };
  useKeys({ h: () => beside(-1), l: () => beside(1) });
  if (!history) return <p class="notice">This rollout has no history: no call completed.</p>;
  const choices = rollout.histories.map(({ index, messages, turns }) => {
    const trained = messages.filter((message) => message.state === "trained").length;
    return { index, agents: agentsOf(rollout, turns), says: trained === 0 ? "nothing trains" : `${trained} ${trained === 1 ? "trains" : "train"}` };
  });
  return (
    <>
      <HistoryChoice
        histories={choices}
        chosen={history.index}
        href={(index) => address("conversation", { h: index })}
      />
      <Conversation rollout={rollout} history={history} turn={turn} address={address} />
    </>
  );
}
