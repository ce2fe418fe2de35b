// The tokens of one turn in the place of its text: first the context that is new in its prompt, then the completion.
// 20 turns come in one answer, and only what is near the window is drawn: a rollout may have 100,000 tokens.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { currentGeneration, request } from "../api/generation";
import { counted, signed } from "../format";
import { nodes, visible } from "../text/visible";
import type { Range, Tokens, TurnTokens } from "./types";

export const COLORS = ["off", "mask", "logprob", "advantage"] as const;
export type Color = (typeof COLORS)[number];

const TURNS = 20;
const LEVELS = 5;
const asked = new Map<string, Promise<Tokens>>();

/** The answer that has a turn; each is asked for once. */
export function askTokens(path: string, turn: number): Promise<Tokens> {
  const first = turn - (turn % TURNS);
  const full = path.replace(/\?|$/, `?first=${first}&`).replace(/&$/, "");
  const key = `${currentGeneration()} ${full}`;
  const known = asked.get(key);
  if (known) return known;
  if (asked.size > 30) asked.clear();
  const answer = request<Tokens>(full);
  asked.set(key, answer);
  answer.catch(() => asked.delete(key));
  return answer;
}

export function useTokens(
  path: string,
  turn: number | null,
): { tokens: TurnTokens | null; answer: Tokens | null; error: string | null } {
  const [state, setState] = useState<{ key: string; answer: Tokens | null; error: string | null } | null>(null);
  const key = `${path} ${turn}`;
  useEffect(() => {
    if (turn === null) return;
    let isShown = true;
    askTokens(path, turn).then(
      (answer) => isShown && setState({ key, answer, error: null }),
      (error: unknown) =>
        isShown && setState({ key, answer: null, error: error instanceof Error ? error.message : String(error) }),
    );
    return () => void (isShown = false);
  }, [path, turn]);
  const { answer, error } = state?.key === key ? state : { answer: null, error: null };
  return { answer, error, tokens: answer?.turns.find((each) => each.turn === turn) ?? null };
}

interface Props {
  path: string;
  turn: number;
  color: Color;
  /** The chosen token, counted from the first of the context. */
  chosen: number | null;
  onChoose: (index: number) => void;
  /** How many tokens there are, so that the page keeps its height. */
  guess: number;
}

export function TurnTokenGrid({ path, turn, color, chosen, onChoose, guess }: Props) {
  const grid = useRef<HTMLDivElement>(null);
  const [near, setNear] = useState(chosen !== null);
  const { tokens, answer, error } = useTokens(path, near ? turn : null);
  useEffect(() => {
    const observer = new IntersectionObserver(([entry]) => entry?.isIntersecting && setNear(true), {
      rootMargin: "600px",
    });
    if (grid.current) observer.observe(grid.current);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (tokens && answer && grid.current) draw(grid.current, tokens, answer, color);
  }, [tokens, color]);
  useEffect(() => {
    grid.current?.querySelector("[aria-current]")?.removeAttribute("aria-current");
    const token = tokens && chosen !== null ? grid.current?.querySelector(`[data-i="${chosen}"]`) : null;
    token?.setAttribute("aria-current", "true");
    token?.scrollIntoView({ block: "nearest" });
  }, [tokens, color, chosen]);
  const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 };
  return (
    <>
      {error !== null && <p class="notice failure">{nodes(error)}</p>}
      {answer && !tokens && <p class="quiet">{nodes(answer.unknown ?? "No token ids are known for this turn.")}</p>}
      <div
        ref={grid}
        class={`tokens ${tokens?.texts ? "texts" : "ids"}`}
        style={tokens || answer ? undefined : { minHeight: `${Math.ceil(guess / 18) * 24}px` }}
        tabIndex={0}
        role="group"
        aria-label={`Tokens of turn ${turn}. The arrow keys move from token to token.`}
        onClick={(event) => {
          const index = (event.target as HTMLElement).closest<HTMLElement>("[data-i]")?.dataset.i;
          if (index !== undefined) onChoose(Number(index));
        }}
        onKeyDown={(event) => {
          const step = steps[event.key];
          if (step === undefined || !tokens) return;
          event.preventDefault();
          const from = chosen ?? tokens.context.length - 1;
          const next = Math.min(Math.max(from + step, 0), tokens.context.length + tokens.ids.length - 1);
          const image = tokens.placeholders.find(({ start, length }) => start <= next && next < start + length);
          onChoose(!image ? next : step > 0 && from === image.start ? image.start + image.length : image.start);
        }}
      />
    </>
  );
}

function draw(grid: HTMLElement, tokens: TurnTokens, { scale }: Tokens, color: Color): void {
  const fragment = document.createDocumentFragment();
  const size = tokens.context.length;
  if (size > 0) fragment.append(border(`${counted(size, "new token")} of ${tokens.start.toLocaleString("en-US")} of context`));
  for (let index = 0; index < size + tokens.ids.length; index++) {
    const at = index - size;
    const weights = tokens.weights.find(({ start }) => start > 0 && start === at);
    if (at === 0 && size > 0) fragment.append(border(counted(tokens.ids.length, "sampled token")));
    if (weights) fragment.append(border(`weights change to ${visible(weights.version)}`));
    const image = tokens.placeholders.find(({ start, length }) => start <= index && index < start + length);
    if (image && image.start !== index) continue;
    const text = tokenText(tokens, index);
    const token = document.createElement("span");
    token.textContent = image ? `${visible(image.kind)}, ${counted(image.length, "placeholder")}` : shown(text);
    token.dataset.i = String(index);
    token.className = tokens.mask[at] ? `trained ${levelOf(tokens, at, color, scale)}` : "masked";
    fragment.append(token);
    if (!tokens.texts) fragment.append(" ");
    else if (text.endsWith("\n")) fragment.append(document.createElement("br"));
  }
  grid.replaceChildren(fragment);
}

function border(text: string): HTMLElement {
  const line = document.createElement("div");
  line.className = "token-border";
  line.textContent = text;
  return line;
}

export function tokenText(tokens: TurnTokens, index: number): string {
  const at = index - tokens.context.length;
  const [texts, ids, place] = at < 0 ? [tokens.contextTexts, tokens.context, index] : [tokens.texts, tokens.ids, at];
  return texts?.[place] ?? String(ids[place] ?? "");
}

/** White space that a reader could not see is drawn as a sign. */
function shown(text: string): string {
  return text === "" ? "∅" : visible(text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll("\r", "␍"));
}

/** The class of a trained token: `low0` to `low5` by logprob, `up…` or `down…` by the advantage's sign and size. */
function levelOf(tokens: TurnTokens, at: number, color: Color, scale: Tokens["scale"]): string {
  if (color === "mask" || color === "off") return "on";
  const value = (color === "logprob" ? tokens.logprobs : tokens.advantages)[at] ?? null;
  const { min, max } = scale[color];
  if (value === null || min === null || max === null) return "unscaled";
  if (color === "logprob") return `low${level(max - value, max - min)}`;
  return value === 0
    ? "zero"
    : `${value > 0 ? "up" : "down"}${Math.max(1, level(Math.abs(value), most({ min, max })))}`;
}

function level(part: number, whole: number): number {
  return whole <= 0 ? 0 : Math.round((LEVELS * part) / whole);
}

function round(value: number): number {
  return Number(value.toFixed(2)) || 0;
}

function most({ min, max }: Range): number {
  return Math.max(-(min ?? 0), max ?? 0);
}

/** What the colors mean, or why there are none. */
export function Legend({ path, color, turn }: { path: string; color: Color; turn: number }) {
  const { answer } = useTokens(path, turn);
  if (!answer || color === "off" || color === "mask") return null;
  const scale = answer.scale[color];
  if (scale.min === null || scale.max === null)
    return <span class="quiet">No trained token has {color === "logprob" ? "a logprob" : "an advantage"} here.</span>;
  const levels = Array.from({ length: LEVELS + 1 }, (_, each) => (
    <span class={`trained low${each}`}>{"\u00a0\u00a0"}</span>
  ));
  return (
    <span class="legend tokens">
      {color === "logprob" ? (
        <>
          {signed(round(scale.max))} {levels} {signed(round(scale.min))}
        </>
      ) : most(scale) === 0 ? (
        <>
          <span class="trained zero">0</span> all are 0: nothing is learned from these tokens
        </>
      ) : (
        <>
          <span class="trained down5">{signed(-most(scale))}</span>{" "}
          <span class="trained up5">{signed(most(scale))}</span>
        </>
      )}
    </span>
  );
}
