// The rollout at a glance: who did what, how long it took, how large its context was, and what went wrong.
import { counted, duration } from "../format";
import type { Query } from "../route";
import { Inline, visible } from "../text/visible";
import { blockName, isCut, isJudge, took } from "./story";
import type { Rollout } from "./types";

interface Row {
  depth: number;
  name: string;
  to: Query | null;
  kind: "turn" | "tool" | "agent" | "failed" | "compaction" | "span";
  startMs?: number;
  endMs?: number | null;
  context?: number | null;
  /** Turns alone: whether it would be trained. */
  trains?: boolean;
  wrong?: string | null;
  quiet?: boolean;
}

export function rowsOf(rollout: Rollout, entries = rollout.story, depth = 0, quiet = false, inside?: string): Row[] {
  return entries.flatMap((entry): Row[] => {
    switch (entry.kind) {
      case "turn": {
        const turn = rollout.turns[entry.turn];
        const call = rollout.calls[turn?.call ?? -1];
        if (!turn || !call) return [];
        const names =
          entry.message === null
            ? []
            : (rollout.messages[entry.message]?.parts ?? []).filter((part) => part.kind === "tool_call");
        const said = names.length > 0 ? `turn ${entry.turn}` : (turn.label ?? `turn ${entry.turn}`);
        const wrong =
          call.error ?? (isCut(turn) ? "cut at the limit of tokens" : turn.relation === "drift" ? "token drift" : null);
        const { startMs, endMs, promptTokens: context } = call;
        const [to, trains] = [{ t: entry.turn }, turn.verdict === null];
        return [
          { depth, name: said, to, kind: "turn", startMs, endMs, context, trains, wrong, quiet },
          ...entry.tools.flatMap((tool, index): Row[] => {
            const name = names[index]?.name ?? "a tool";
            return [
              { depth: depth + 1, name, to: { ...to, tool: index }, kind: "tool", wrong: tool.failed, quiet },
              ...rowsOf(rollout, tool.blocks, depth + 2, quiet, name),
            ];
          }),
          ...rowsOf(rollout, entry.blocks, depth + 1, quiet),
        ];
      }
      case "failed": {
        const call = rollout.calls[entry.call];
        const { startMs = 0, endMs = null, promptTokens: context = null } = call ?? {};
        const error = call?.error ?? null;
        const [name, kind] =
          error === null ? ["no answer recorded", "turn" as const] : ["failed call", "failed" as const];
        return [{ depth, name, to: { f: entry.call }, kind, startMs, endMs, context, wrong: error, quiet }];
      }
      case "compaction":
        return [{ depth, name: "compaction", to: { f: entry.after }, kind: "compaction", quiet }];
      case "agent": {
        const judge = inside === undefined && isJudge(rollout, entry);
        const inner = rowsOf(rollout, entry.entries, depth + 1, judge || quiet);
        const [name, to] = [blockName(rollout, entry, inside), inner[0]?.to ?? null];
        return [{ depth, name, to, kind: "agent", quiet: judge || quiet }, ...inner];
      }
      default:
        return [];
    }
  });
}

interface Props {
  rollout: Rollout;
  address: (query: Query) => string;
  turn: number | null;
}

const SIGNS: Record<Row["kind"], string> = { turn: "○", tool: "", agent: "▸", failed: "✕", compaction: "⇊", span: "" };

export function Outline({ rollout, address, turn }: Props) {
  const { spans } = rollout;
  const whole = Math.max(1, ...rollout.calls.map((call) => call.endMs ?? call.startMs), rollout.row.durationMs ?? 0);
  const largest = Math.max(1, ...rollout.calls.map((call) => call.promptTokens ?? 0));
  const lineOf = ({ depth, kind, name, to, startMs, endMs = null, context, trains, wrong, quiet }: Row) => {
    const isChosen = turn !== null && kind === "turn" && to?.t === turn;
    const time = startMs !== undefined && took({ startMs, endMs });
    const says = [name, time, context && counted(context, "token"), wrong].filter(Boolean).join(" · ");
    const text = <Inline text={name.length > 40 ? `${name.slice(0, 40)}…` : name} />;
    return (
      <li
        class={`row-${kind}${wrong ? " bad" : ""}${quiet ? " quiet" : ""}${isChosen ? " chosen" : ""}`}
        style={{ paddingLeft: `${Math.min(depth, 9) * 9}px` }}
      >
        <span class={trains ? "sign trains" : "sign"} aria-hidden="true">
          {trains ? "●" : SIGNS[kind]}
        </span>
        {to === null ? (
          text
        ) : (
          <a href={address(to)} title={visible(says)}>
            {text}
          </a>
        )}
        {wrong && kind !== "failed" && <span class="status bad">{signOf(wrong)}</span>}
        {startMs !== undefined && (
          <span class="bars" aria-hidden="true">
            <i
              class="took"
              style={{ left: `${(100 * startMs) / whole}%`, width: `${(100 * ((endMs ?? startMs) - startMs)) / whole}%` }}
            />
            <i class="context" style={{ width: `${(100 * (context ?? 0)) / largest}%` }} />
          </span>
        )}
      </li>
    );
  };
  return (
    <nav class="outline" aria-label="Outline">
      <details open={innerWidth > 760}>
        <summary>
          {counted(rollout.turns.length, "turn")} · {duration(whole)}
        </summary>
        <p class="quiet">
          lines: <span class="key took" /> time, <span class="key context" /> size of the prompt
        </p>
        <ol>{rowsOf(rollout).map(lineOf)}</ol>
        {spans.length > 0 && (
          <details>
            <summary>{counted(spans.length, "span")}</summary>
            <ol class="spans">
              {spans.map(({ call, ...span }) => {
                const of = rollout.turns.find((each) => each.call === call)?.turn;
                return lineOf({ ...span, kind: "span", to: call === null ? null : of === undefined ? { f: call } : { t: of } });
              })}
            </ol>
          </details>
        )}
      </details>
    </nav>
  );
}

export function signOf(wrong: string): string {
  return wrong.startsWith("cut") ? "✂" : wrong === "token drift" ? "⚡" : "✕";
}
