// Tokens are drawn in blocks of 500, as plain elements: a history may have 25,000. The browser skips blocks out of view.
import type { Placeholder, Tokens } from "../api/types";
import { counted } from "../format";
import { visible } from "../text/visible";
import { levelOf, type Color } from "./token_color";

export const BLOCK = 500;

export function tokenText(tokens: Tokens, index: number): string {
  return tokens.texts ? (tokens.texts[index] ?? "") : String(tokens.ids[index] ?? "");
}

/** What stands at a token for an image. */
export function placeholderAt(tokens: Tokens, index: number): Placeholder | undefined {
  return tokens.placeholders.find(({ start, length }) => start <= index && index < start + length);
}

export function placeholderText({ kind, length }: Placeholder): string {
  return `${visible(kind)}, ${counted(length, "placeholder")}`;
}

export function fillBlock(block: HTMLElement, tokens: Tokens, start: number, borders: Map<number, string>): void {
  const fragment = document.createDocumentFragment();
  const end = Math.min(start + BLOCK, tokens.length);
  for (let index = start; index < end; index++) {
    const begins = borders.get(index);
    if (begins !== undefined) {
      const border = document.createElement("div");
      border.className = "token-border";
      border.textContent = begins;
      fragment.append(border);
    }
    const placeholder = placeholderAt(tokens, index);
    if (placeholder && placeholder.start !== index) continue;
    const token = document.createElement("span");
    const text = placeholder ? "" : tokenText(tokens, index);
    token.textContent = placeholder ? placeholderText(placeholder) : shown(text);
    token.dataset.i = String(index);
    if (placeholder) token.dataset.placeholder = "";
    fragment.append(token);
    if (!tokens.texts) fragment.append(" ");
    else if (text.endsWith("\n")) fragment.append(document.createElement("br"));
  }
  block.replaceChildren(fragment);
}

/** White space that a reader could not see is drawn as a sign. */
function shown(text: string): string {
  if (text === "") return "∅";
  return visible(text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll("\r", "␍"));
}

export function colorBlock(block: HTMLElement, tokens: Tokens, color: Color): void {
  for (const token of block.children) {
    if (!(token instanceof HTMLElement) || token.dataset.i === undefined) continue;
    const index = Number(token.dataset.i);
    token.className = tokens.mask[index] ? `trained ${levelOf(tokens, index, color)}` : "masked";
  }
}
