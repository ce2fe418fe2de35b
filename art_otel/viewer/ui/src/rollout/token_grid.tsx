import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Tokens } from "../api/types";
import { BLOCK, colorBlock, fillBlock, placeholderAt } from "./token_block";
import type { Color } from "./token_color";

interface Props {
  tokens: Tokens;
  borders: Map<number, string>;
  color: Color;
  chosen: number | null;
  onChoose: (index: number) => void;
}

/** The tokens of a history; arrow keys move from one to the next. */
export function TokenGrid({ tokens, borders, color, chosen, onChoose }: Props) {
  const grid = useRef<HTMLDivElement>(null);
  const marked = useRef<Element | null>(null);
  useLayoutEffect(() => {
    const blocks: HTMLElement[] = [];
    for (let start = 0; start < tokens.length; start += BLOCK) {
      const block = document.createElement("div");
      block.className = "token-block";
      fillBlock(block, tokens, start, borders);
      if (block.hasChildNodes()) blocks.push(block);
    }
    grid.current?.replaceChildren(...blocks);
  }, [tokens, borders]);
  useLayoutEffect(() => {
    for (const block of grid.current?.children ?? []) colorBlock(block as HTMLElement, tokens, color);
  }, [tokens, borders, color]);
  useEffect(() => {
    marked.current?.removeAttribute("aria-current");
    const drawn = chosen === null ? null : (placeholderAt(tokens, chosen)?.start ?? chosen);
    marked.current = drawn === null ? null : (grid.current?.querySelector(`[data-i="${drawn}"]`) ?? null);
    marked.current?.setAttribute("aria-current", "true");
    marked.current?.scrollIntoView({ block: "nearest" });
  }, [tokens, borders, chosen]);
  /** The placeholders of an image are one step. */
  const from = (index: number, step: number) => {
    const placeholder = placeholderAt(tokens, index);
    return placeholder === undefined ? index : placeholder.start + (step > 0 ? placeholder.length - 1 : 0);
  };
  const keys: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 };
  return (
    <div
      ref={grid}
      class={`tokens token-grid ${tokens.texts ? "texts" : "ids"}`}
      tabIndex={0}
      role="group"
      aria-label="Tokens. The arrow keys move from token to token; Home and End to the first and the last."
      onClick={(event) => {
        const index = (event.target as HTMLElement).closest<HTMLElement>("[data-i]")?.dataset.i;
        if (index !== undefined) onChoose(Number(index));
      }}
      onKeyDown={(event) => {
        const at = event.key === "Home" ? 0 : event.key === "End" ? tokens.length - 1 : null;
        const step = keys[event.key];
        if (at === null && step === undefined) return;
        event.preventDefault();
        const next = Math.min(Math.max(at ?? from(chosen ?? -1, step ?? 0) + (step ?? 0), 0), tokens.length - 1);
        onChoose(placeholderAt(tokens, next)?.start ?? next);
      }}
    />
  );
}
