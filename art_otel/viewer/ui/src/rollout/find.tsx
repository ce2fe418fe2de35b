// Finds a text in what is shown of a rollout. The browser marks the places itself, so that the page stays as it is.
import { useEffect, useState } from "preact/hooks";
import type { RefObject } from "preact";

const NAME = "found";

export function Find({ inside, of }: { inside: RefObject<HTMLElement | null>; of: unknown }) {
  const [text, setText] = useState("");
  const [found, setFound] = useState<Range[]>([]);
  const [at, setAt] = useState(0);
  useEffect(() => {
    const ranges = inside.current && text ? rangesOf(inside.current, text) : [];
    setFound(ranges);
    setAt(0);
    CSS.highlights.set(NAME, new Highlight(...ranges));
    return () => void CSS.highlights.delete(NAME);
  }, [text, of]);
  const move = (step: number) => {
    if (found.length === 0) return;
    const next = (at + step + found.length) % found.length;
    found[at]?.startContainer.parentElement?.scrollIntoView({ block: "center" });
    setAt(next);
  };
  return (
    <label class="find">
      <span class="hidden">Find in this history</span>
      <input
        type="search"
        placeholder="Find in this history"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter") move(event.shiftKey ? -1 : 1);
        }}
      />
      <span class="quiet" role="status">
        {text && (found.length === 0 ? "nowhere" : `${found.length} found; Enter goes to the next`)}
      </span>
    </label>
  );
}

/** The places of a text, whatever its case, each within one piece of text of the page. */
function rangesOf(element: HTMLElement, text: string): Range[] {
  const wanted = text.toLowerCase();
  const ranges: Range[] = [];
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const says = (walker.currentNode.nodeValue ?? "").toLowerCase();
    for (let start = says.indexOf(wanted); start >= 0; start = says.indexOf(wanted, start + wanted.length)) {
      const range = document.createRange();
      range.setStart(walker.currentNode, start);
      range.setEnd(walker.currentNode, start + wanted.length);
      ranges.push(range);
    }
  }
  return ranges;
}
