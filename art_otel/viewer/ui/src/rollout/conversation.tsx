import { useEffect, useRef } from "preact/hooks";
import type { History, Rollout } from "../api/types";
import { useKeys } from "../keyboard/keys";
import type { Query } from "../route";
import { Inline } from "../text/visible";
import { Find } from "./find";
import { MessageCard } from "./message";

interface Props {
  rollout: Rollout;
  history: History;
  turn: number | null;
  address: (tab: string, query: Query) => string;
}

export function Conversation({ rollout, history, turn, address }: Props) {
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => {
    if (turn === null) return;
    const message = list.current?.querySelector<HTMLElement>(`[data-turn="${turn}"]`);
    message?.scrollIntoView({ block: "start" });
    message?.focus({ preventScroll: true });
  }, [turn, history.index]);
  const move = (step: 1 | -1) => {
    const trained = [...(list.current?.querySelectorAll<HTMLElement>('[data-state="trained"]') ?? [])];
    const at = trained.indexOf(document.activeElement as HTMLElement);
    const next = at < 0 ? nearest(trained, step) : trained[at + step];
    next?.scrollIntoView({ block: "start" });
    next?.focus({ preventScroll: true });
  };
  useKeys({ n: () => move(1), p: () => move(-1) });
  if (history.messages.length === 0)
    return (
      <p class="notice">
        <strong>The messages are unknown.</strong>{" "}
        <Inline text={history.unknown ?? "Nobody recorded the content of this history."} />
      </p>
    );
  return (
    <>
      {history.unknown && (
        <p class="notice">
          <Inline text={history.unknown} />
        </p>
      )}
      <Find inside={list} of={history} />
      <ol class="messages" ref={list} aria-label={`Messages of history ${history.index + 1}`}>
        {history.messages.map((message) => (
          <MessageCard
            message={message}
            rewards={message.rewards.flatMap((index) => rollout.rewards[index] ?? [])}
            sampledBy={message.turn === null ? null : (rollout.turns[message.turn] ?? null)}
            chosen={turn !== null && message.turn === turn}
            linkTo={(index, target) => address("conversation", { h: index, t: target })}
            tokensOf={(target) => address("tokens", { t: target })}
          />
        ))}
      </ol>
    </>
  );
}

/** The first below the top of the window, or the last above it. */
function nearest(elements: HTMLElement[], step: 1 | -1): HTMLElement | undefined {
  const line = 120;
  return step > 0
    ? elements.find((element) => element.getBoundingClientRect().top > line)
    : elements.filter((element) => element.getBoundingClientRect().top < line).pop();
}
