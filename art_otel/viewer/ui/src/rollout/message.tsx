import type { Message, Reward, Turn } from "../api/types";
import { duration, json } from "../format";
import { Block, Inline } from "../text/visible";
import { MessagePart } from "./part";
import { RewardNote } from "./reward";
import { TurnNotes, whyOf } from "./turn_notes";

interface Props {
  message: Message;
  rewards: Reward[];
  sampledBy: Turn | null;
  chosen: boolean;
  linkTo: (history: number, turn: number) => string;
  tokensOf: (turn: number) => string;
}

const SAYS: Record<Message["state"], string> = {
  trained: "● trains",
  context: "",
  copy: "↪ context copy",
  untrained: "○ not trained",
};

export function MessageCard({ message, rewards, sampledBy, chosen, linkTo, tokensOf }: Props) {
  const { state, turn, trainedIn, execution } = message;
  const agent = sampledBy?.agent ?? null;
  return (
    <li
      class={`message message-${state}${chosen ? " chosen" : ""}`}
      data-turn={turn ?? undefined}
      data-state={state}
      tabIndex={-1}
    >
      <div class="message-head">
        <span class="role">
          <Inline text={message.role} />
        </span>
        {message.name && <Inline text={message.name} />}
        {agent !== null && (
          <span class="tag">
            <Inline text={agent} />
          </span>
        )}
        {turn !== null && state !== "context" && <span class="turn">turn {turn}</span>}
        {SAYS[state] && <span class="state">{SAYS[state]}</span>}
        {state === "untrained" && message.why !== null && (
          <span>
            <Inline text={sampledBy === null ? message.why : whyOf(sampledBy, message.why)} />
          </span>
        )}
        {sampledBy !== null && (state === "trained" || state === "untrained") && (
          <TurnNotes turn={sampledBy} reason={message.why} />
        )}
        {trainedIn && (
          <a href={linkTo(trainedIn.history, trainedIn.turn)}>
            trained in history {trainedIn.history + 1}, turn {trainedIn.turn}
          </a>
        )}
        {state === "copy" && !trainedIn && message.why !== null && <Inline text={message.why} />}
        {message.added && (
          <span class="tag" title="Added by the app behind the last completion">
            after the last completion
          </span>
        )}
        {turn !== null && (state === "trained" || state === "untrained") && (
          <a class="aside" href={tokensOf(turn)}>
            tokens
          </a>
        )}
      </div>
      {message.parts.length === 0 && <p class="quiet">empty</p>}
      {message.parts.map((part) => (
        <MessagePart part={part} />
      ))}
      {execution && (
        <div class="tool execution">
          <div class="tool-head">
            <span class="tag">ran</span>{" "}
            <code>
              <Inline text={execution.name ?? "a tool"} />
            </code>
            <span class="quiet">
              {execution.durationMs === null ? "for an unknown time" : `for ${duration(execution.durationMs)}`}
            </span>
            {execution.error !== null && (
              <span class="status bad">
                ✕ <Inline text={execution.error} />
              </span>
            )}
          </div>
          {execution.result !== null && <Block text={json(execution.result)} mono />}
        </div>
      )}
      {rewards.map((reward) => (
        <RewardNote reward={reward} />
      ))}
    </li>
  );
}
