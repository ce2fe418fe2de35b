import type { Tokens } from "../api/types";
import { decimal, signed } from "../format";
import { LEVELS, unknownColor, type Color } from "./token_color";

export function Legend({ tokens, color }: { tokens: Tokens; color: Color }) {
  const unknown = unknownColor(tokens, color);
  if (unknown) return <p class="notice">{unknown}</p>;
  const scale = color === "mask" ? null : tokens.scale[color];
  return (
    <p class="legend tokens" aria-label="Legend">
      {color === "mask" && <span class="trained on">trained</span>}
      {color === "logprob" && scale && (
        <>
          <span class="num">{decimal(scale.max ?? 0, 3)}</span>
          {levels().map((level) => (
            <span class={`trained low${level}`} aria-hidden="true">
              {"\u00a0\u00a0"}
            </span>
          ))}
          <span class="num">{decimal(scale.min ?? 0, 3)}</span>
          <span class="quiet">a thicker bar below: less likely</span>
        </>
      )}
      {color === "advantage" && scale && <AdvantageScale most={Math.max(-(scale.min ?? 0), scale.max ?? 0)} />}
      <span class="masked">masked</span>
      {color !== "mask" && <span class="trained unscaled">unknown</span>}
    </p>
  );
}

function AdvantageScale({ most }: { most: number }) {
  if (most === 0)
    return (
      <>
        <span class="trained zero">0</span>
        <span class="quiet">all are 0: nothing is learned from these tokens</span>
      </>
    );
  return (
    <>
      <span class="trained down5">{signed(-most)}</span>
      <span class="trained zero">0</span>
      <span class="trained up5">{signed(most)}</span>
      <span class="quiet">bar below: more of it; bar above: less of it</span>
    </>
  );
}

function levels(): number[] {
  return Array.from({ length: LEVELS + 1 }, (_, level) => level);
}
