// Content as what it is: JSON unfolded, patches as diffs, code and tables of Markdown, images that stand in the message.
// Every text becomes text nodes, so nothing of it runs.
import { useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { nodes, visible } from "../text/visible";
import type { Message, Part } from "./types";

const LONG = 1600;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const DIFF = /^(diff --git |--- .+\n\+\+\+ |\*\*\* Begin Patch|@@ .*@@)/m;

/** What a message says but for its tool calls, which stand with their results. */
export function Parts({ message }: { message: Message }) {
  const parts = message.parts.filter((part) => part.kind !== "tool_call");
  if (message.parts.length === 0) return <p class="quiet">empty</p>;
  return (
    <>
      {parts.map((part) => (
        <Body part={part} />
      ))}
    </>
  );
}

function Body({ part }: { part: Part }) {
  const text = part.text ?? "";
  switch (part.kind) {
    case "text":
      return <Markdown text={text} />;
    case "reasoning":
      return (
        <details class="reasoning" open={text.length < 600}>
          <summary>reasoning</summary>
          <Cut text={text} as={(shown) => <div class="verbatim">{nodes(shown)}</div>} />
        </details>
      );
    case "tool_result":
      return <Value text={text} />;
    case "media":
      return part.image ? (
        <img class="media" src={part.image} alt={`in the message: ${visible(text)}`} />
      ) : (
        <p class="media quiet">{nodes(text)}, not loaded</p>
      );
    default:
      return (
        <>
          <span class="tag">{part.kind}</span> <Value text={text} />
        </>
      );
  }
}

/** A text of any length: a long one begins closed. */
function Cut({ text, as }: { text: string; as: (shown: string) => ComponentChildren }) {
  const [whole, setWhole] = useState(false);
  const end = whole || text.length <= LONG * 1.5 ? text.length : LONG;
  return (
    <>
      {as(text.slice(0, end))}
      {end < text.length && (
        <button class="plain" onClick={() => setWhole(true)}>
          Show all {text.length.toLocaleString("en-US")} characters
        </button>
      )}
    </>
  );
}

/** Arguments of a tool, or what it returned. */
export function Value({ text }: { text: string }) {
  const value = text.length < 200_000 && /^\s*[[{]/.test(text) ? parsed(text) : undefined;
  if (value !== undefined) return <Unfolded value={value} />;
  return <Cut text={text} as={(shown) => (DIFF.test(text) ? <Diff text={shown} /> : <pre>{nodes(shown)}</pre>)} />;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A JSON value: an object is its names and values, a text its lines. */
function Unfolded({ value }: { value: unknown }) {
  if (typeof value === "string")
    return value.includes("\n") ? <Value text={value} /> : <code class="verbatim">{nodes(value)}</code>;
  if (typeof value !== "object" || value === null) return <code>{String(value)}</code>;
  const entries = Object.entries(value);
  if (entries.length === 0) return <code>{Array.isArray(value) ? "[]" : "{}"}</code>;
  return (
    <dl class="json">
      {entries.slice(0, 200).map(([name, each]) => (
        <div>
          <dt>{nodes(name)}</dt>
          <dd>
            <Unfolded value={each} />
          </dd>
        </div>
      ))}
      {entries.length > 200 && <div class="quiet">… {entries.length - 200} more; Raw has all</div>}
    </dl>
  );
}

function Diff({ text }: { text: string }) {
  return (
    <pre class="diff">
      {text.split("\n").map((line) => {
        const kind = line.startsWith("+") ? "ins" : line.startsWith("-") ? "del" : line.startsWith("@@") ? "b" : "span";
        const Line = kind as "ins";
        return <Line>{nodes(`${line}\n`)}</Line>;
      })}
    </pre>
  );
}

/** Code between fences, tables, headings, bold and code of a line; all else stays as it was written. */
function Markdown({ text }: { text: string }) {
  const blocks: ComponentChildren[] = [];
  const lines = text.split("\n");
  let plain: string[] = [];
  const flush = () => {
    const said = plain.join("\n");
    if (said !== "")
      blocks.push(
        <Cut
          text={said}
          as={(shown) => (
            <div class="verbatim" dir="auto">
              {spans(shown)}
            </div>
          )}
        />,
      );
    plain = [];
  };
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at] ?? "";
    const fence = FENCE.exec(line)?.[1];
    const close =
      fence === undefined ? -1 : lines.findIndex((each, index) => index > at && each.trim().startsWith(fence));
    if (fence !== undefined) {
      flush();
      const code = lines.slice(at + 1, close < 0 ? undefined : close).join("\n");
      blocks.push(<Value text={code} />);
      if (close < 0) return <>{blocks}</>; // the answer was cut within its code
      at = close;
    } else if (line.includes("|") && /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)+\|?\s*$/.test(lines[at + 1] ?? "")) {
      flush();
      let end = at + 2;
      while (lines[end]?.includes("|")) end++;
      blocks.push(<Table rows={lines.slice(at, end).filter((_, index) => index !== 1)} />);
      at = end - 1;
    } else plain.push(line);
  }
  flush();
  return <>{blocks}</>;
}

function Table({ rows }: { rows: string[] }) {
  const cells = rows.map((row) =>
    row
      .trim()
      .replace(/^\||\|$/g, "")
      .split("|"),
  );
  return (
    <table class="said">
      <thead>
        <tr>
          {cells[0]?.map((cell) => (
            <th scope="col">{spans(cell.trim())}</th>
          ))}
        </tr>
      </thead>
      <tbody>
        {cells.slice(1).map((row) => (
          <tr>
            {row.map((cell) => (
              <td>{spans(cell.trim())}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function spans(text: string): ComponentChildren {
  const parts: ComponentChildren[] = [];
  let end = 0;
  for (const match of text.matchAll(/^#{1,6} (.+)$|\*\*([^*\n]+)\*\*|`([^`\n]+)`/gm)) {
    const [whole, heading, bold, code] = match;
    parts.push(
      nodes(text.slice(end, match.index)),
      code ? <code>{nodes(code)}</code> : <b>{nodes(heading ?? bold ?? "")}</b>,
    );
    end = match.index + whole.length;
  }
  return [...parts, nodes(text.slice(end))];
}
