// Text of strangers, verbatim. Characters that hide or reorder others are drawn as a small box with their code.
import { useState } from "preact/hooks";
import type { ComponentChildren } from "preact";

// Emoji keep their joiners and variation selectors: there they hide nothing.
const HIDDEN = new RegExp(
  [
    "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180e]",
    "[\\u200b\\u200c\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufe00-\\ufe0e\\ufeff\\uffa0\\ufff0-\\ufffb]",
    "(?<!\\p{Extended_Pictographic})\\ufe0f",
    "(?<!\\p{Extended_Pictographic}[\\ufe0f\\u{1f3fb}-\\u{1f3ff}]?)\\u200d",
    "[\\u{e0000}-\\u{e0fff}]",
    "\\p{Surrogate}",
  ].join("|"),
  "gu",
);

const LONG = 12_000;

function code(character: string): string {
  return `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** The same for where no element can stand: titles and labels. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (character) => `⟨${code(character)}⟩`);
}

export function nodes(text: string): ComponentChildren {
  if (text.search(HIDDEN) < 0) return text;
  const parts: ComponentChildren[] = [];
  let end = 0;
  for (const match of text.matchAll(HIDDEN)) {
    parts.push(text.slice(end, match.index), <span class="codepoint">{code(match[0])}</span>);
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}

export function Inline({ text }: { text: string }) {
  return <bdi>{nodes(text)}</bdi>;
}

/** A text of any length: a long one begins closed. */
export function Block({ text, mono = false }: { text: string; mono?: boolean }) {
  const [whole, setWhole] = useState(false);
  const cut = !whole && text.length > LONG;
  return (
    <div class={mono ? "verbatim mono" : "verbatim"} dir="auto">
      {nodes(cut ? text.slice(0, LONG) : text)}
      {cut && (
        <button class="more" onClick={() => setWhole(true)}>
          Show all {text.length.toLocaleString("en-US")} characters
        </button>
      )}
    </div>
  );
}
