import { useEffect, useMemo } from "preact/hooks";
import type { Info, Tokens } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { count, percent } from "../format";
import { useKeys } from "../keyboard/keys";
import type { TabProps } from "../pages/rollout";
import { go, queryText, type Query } from "../route";
import { Failure, Loading } from "../text/unknown";
import { Inline } from "../text/visible";
import { agentsOf } from "./conversation_tab";
import { HistoryChoice } from "./history_choice";
import { Legend } from "./legend";
import { RewardOptions } from "./option_choice";
import { COLORS, colorOf, type Color } from "./token_color";
import { bordersOf } from "./token_borders";
import { TokenGrid } from "./token_grid";
import { Why } from "./why";

/** Token histories are their own: they follow the ids, where those of the conversation follow the messages. */
export function TokensTab({ rollout, info, query, address }: TabProps) {
  const history = Number(query.get("h") ?? rollout.main.tokens);
  const options = { credit: query.get("credit"), advantage: query.get("advantage") };
  const asked = queryText({ history: String(history), ...options });
  const { answer: tokens, error } = useAnswer<Tokens>(`/api/rollouts/${rollout.row.key}/tokens?${asked}`);
  const borders = useMemo(() => (tokens ? bordersOf(tokens, rollout) : new Map<number, string>()), [tokens, rollout]);
  const color = colorOf(query.get("c"));
  const chosen = query.has("i") ? Number(query.get("i")) : null;
  const kept = { c: color === "mask" ? null : color, ...options };
  const show = (changes: Query) =>
    go(address("tokens", { h: history, i: chosen, ...kept, ...changes }), { replace: true });
  useTurn(tokens, query, (h, i) =>
    go(address("tokens", { h, i, ...kept, t: i === null ? query.get("t") : null }), { replace: true }),
  );
  const trained = tokens?.spans.filter((span) => span.trained) ?? [];
  const beside = (step: number) => {
    const next = tokens?.histories?.[history + step];
    if (next) go(address("tokens", { ...kept, h: next.index }));
  };
  useKeys({
    c: () => show({ c: nextColor(color) }),
    n: () => show({ i: trained.find((span) => span.start > (chosen ?? -1))?.start ?? chosen }),
    p: () => show({ i: trained.filter((span) => span.start < (chosen ?? 0)).pop()?.start ?? chosen }),
    h: () => beside(-1),
    l: () => beside(1),
  });
  if (!tokens) return error ? <Failure says={error} /> : <Loading />;
  if (tokens.length === 0 || tokens.unknown !== null) {
    return (
      <p class="notice">
        <strong>Token ids are unknown.</strong> <Inline text={tokens.unknown ?? "This history has no tokens."} />
      </p>
    );
  }
  const choices = (tokens.histories ?? []).map(({ index, turns, length }) => ({
    index,
    agents: agentsOf(rollout, turns),
    says: `${count(length)} tokens`,
  }));
  return (
    <div class="tokens-tab">
      <HistoryChoice histories={choices} chosen={history} href={(index) => address("tokens", { ...kept, h: index })} />
      <TokenBar tokens={tokens} info={info} color={color} query={query} show={show} />
      {!tokens.texts && (
        <p class="quiet">
          Ids, as no tokenizer was given: <code>art-otel view … --tokenizer PATH</code> shows their text.
        </p>
      )}
      <Legend tokens={tokens} color={color} />
      <div class="token-panes">
        <TokenGrid
          tokens={tokens}
          borders={borders}
          color={color} chosen={chosen} onChoose={(index) => show({ i: index })} />
        <Why tokens={tokens} index={chosen} conversation={(turn) => address("conversation", { t: turn })} />
      </div>
    </div>
  );
}

function nextColor(color: Color): Color | null {
  const next = COLORS[(COLORS.indexOf(color) + 1) % COLORS.length];
  return next === undefined || next === "mask" ? null : next;
}

/** A link that names a turn leads to its first token, in the history that trains it. */
function useTurn(
  tokens: Tokens | null,
  query: URLSearchParams,
  found: (history: number, index: number | null) => void,
): void {
  const turn = query.has("t") && !query.has("i") ? Number(query.get("t")) : null;
  useEffect(() => {
    if (!tokens || turn === null) return;
    const home = query.has("h")
      ? tokens.history
      : (tokens.histories?.find(({ turns }) => turns.includes(turn))?.index ?? tokens.history);
    const span = tokens.spans.find((each) => each.turn === turn);
    if (home !== tokens.history) found(home, null);
    else if (span) found(home, span.start);
  }, [tokens, turn]);
}

interface BarProps {
  tokens: Tokens;
  info: Info | null;
  color: Color;
  query: URLSearchParams;
  show: (changes: Query) => void;
}

function TokenBar({ tokens, info, color, query, show }: BarProps) {
  const on = tokens.mask.reduce((sum, bit) => sum + bit, 0);
  return (
    <div class="token-bar">
      <fieldset class="segments">
        <legend class="hidden">Color</legend>
        {COLORS.map((name) => (
          <label class={name === color ? "on" : ""}>
            <input
              type="radio"
              name="color"
              value={name}
              checked={name === color}
              onChange={() => show({ c: name === "mask" ? null : name })}
            />
            {name}
          </label>
        ))}
      </fieldset>
      <RewardOptions info={info} query={query} onChange={show} />
      <span class="quiet">
        {count(on)} of {count(tokens.length)} tokens trained ({percent(on, tokens.length)})
      </span>
    </div>
  );
}
