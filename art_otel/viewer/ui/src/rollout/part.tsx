import type { Part } from "../api/types";
import { json } from "../format";
import { Block, Inline } from "../text/visible";

/** One part of a message, verbatim. */
export function MessagePart({ part }: { part: Part }) {
  const text = part.text ?? "";
  switch (part.kind) {
    case "text":
      return <Block text={text} />;
    case "reasoning":
      return (
        <details class="reasoning" open={text.length < 2000}>
          <summary>reasoning</summary>
          <Block text={text} />
        </details>
      );
    case "tool_call":
      return (
        <div class="tool">
          <div class="tool-head">
            <span class="tag">calls</span>{" "}
            <code>
              <Inline text={part.name ?? "a tool without a name"} />
            </code>
            {part.callId && (
              <span class="id">
                <Inline text={part.callId} />
              </span>
            )}
          </div>
          <Block text={json(part.arguments ?? text)} mono />
        </div>
      );
    case "tool_result":
      return (
        <div class="tool">
          <div class="tool-head">
            <span class="tag">result</span>{" "}
            {part.name && (
              <code>
                <Inline text={part.name} />
              </code>
            )}
            {part.callId && (
              <span class="id">
                <Inline text={part.callId} />
              </span>
            )}
          </div>
          <Block text={text} mono />
        </div>
      );
    default:
      return (
        <div class="tool">
          <div class="tool-head">
            <span class="tag">
              {part.kind === "refusal" ? "refusal" : part.kind === "media" ? "media, not loaded" : "other"}
            </span>
          </div>
          <Block text={text || json(part.arguments ?? part.name ?? "")} />
        </div>
      );
  }
}
