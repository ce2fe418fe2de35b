// Where turns and what the app wrote between them begin: ids without a tokenizer say nothing of it.
import type { Message, Rollout, Tokens } from "../api/types";
import { visible } from "../text/visible";

const LONGEST = 80;

/** What begins at a token, by its index. */
export function bordersOf(tokens: Tokens, rollout: Rollout): Map<number, string> {
  const turns = tokens.spans.map((span) => span.turn);
  const messages = rollout.histories.find((history) => turns.every((turn) => history.turns.includes(turn)))?.messages;
  const borders = new Map<number, string>();
  let [end, said] = [0, 0];
  for (const span of tokens.spans) {
    const at = messages?.findIndex((message) => message.turn === span.turn) ?? -1;
    if (span.start > end) borders.set(end, contextOf(at < 0 ? [] : (messages ?? []).slice(said, at)));
    const { agent = null, label = null } = rollout.turns[span.turn] ?? {};
    borders.set(span.start, cut([`turn ${span.turn}`, agent, label].filter((part) => part !== null).join(" · ")));
    for (const [at, { version, start }] of span.weights.entries())
      if (at > 0) borders.set(start, `weights change to ${visible(version)}`);
    end = span.end;
    said = at + 1;
  }
  if (end < tokens.length) borders.set(end, contextOf((messages ?? []).slice(said)));
  return borders;
}

function contextOf(messages: Message[]): string {
  const says = messages.map(({ role, parts }) => cut(`${role}: ${parts.map((part) => part.text ?? part.name ?? "").join(" ")}`));
  return says.length === 0 ? "context" : says.join(" · ");
}

function cut(text: string): string {
  const line = visible(text.replace(/\s+/g, " "));
  return line.length > LONGEST ? `${line.slice(0, LONGEST)}…` : line;
}
