// A rollout as one story: what was said, by whom, in the order of time.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { count, counted, duration } from "../format";
import type { Query } from "../route";
import { Block, Inline, visible } from "../text/visible";
import { Parts, Value } from "./body";
import { RewardNote } from "./reward";
import { TurnTokenGrid, type Color } from "./tokens";
import type { AgentEntry, Call, Entry, FailedEntry, Message, Rollout, Tool, Turn, TurnEntry } from "./types";

interface Shown {
  rollout: Rollout;
  color: Color;
  path: string;
  turn: number | null;
  index: number | null;
  address: (query: Query) => string;
  choose: (turn: number, index: number | null) => void;
}

export const StoryContext = createContext<Shown>(null as unknown as Shown);

/** The limit of tokens ended the answer. */
export function isCut(turn: Turn): boolean {
  return turn.finishReason === "length";
}

export function isJudge(rollout: Rollout, block: AgentEntry): boolean {
  const calls = block.calls.map((call) => rollout.calls[call]);
  const turns = rollout.turns.filter((turn) => block.calls.includes(turn.call));
  const isMarked = turns.length > 0 && turns.every((turn) => turn.markedUntrained !== null);
  return isMarked || calls.every((call) => call?.agent === null && call.model !== rollout.calls[0]?.model);
}

/** The name of who runs in a block: its agent, or the tool that began it. */
export function blockName(rollout: Rollout, block: AgentEntry, tool?: string): string {
  if (block.agent !== null || tool !== undefined) return block.agent ?? tool ?? "";
  const turn = rollout.turns.find((each) => block.calls.includes(each.call));
  const model = rollout.calls[block.calls[0] ?? 0]?.model ?? null;
  return isJudge(rollout, block) ? (turn?.markedUntrained ?? model ?? "another model") : "another conversation";
}

export function took({ startMs, endMs }: { startMs: number; endMs: number | null }): string {
  return endMs === null ? "no end" : duration(endMs - startMs);
}

export function Entries({ entries }: { entries: Entry[] }) {
  return (
    <ol class="entries">
      {entries.map((entry) => (
        <li>
          <OneEntry entry={entry} />
        </li>
      ))}
    </ol>
  );
}

function OneEntry({ entry }: { entry: Entry }) {
  const { rollout, address } = useContext(StoryContext);
  switch (entry.kind) {
    case "message": {
      const message = rollout.messages[entry.message];
      return message ? <ContextMessage message={message} /> : null;
    }
    case "turn":
      return <TurnCard entry={entry} />;
    case "failed":
      return <Failed entry={entry} />;
    case "agent":
      return <Agent block={entry} />;
    case "branch":
      return (
        <p class="divider">
          goes on from <a href={address({ t: entry.after })}>turn {entry.after}</a> in another way
        </p>
      );
    case "compaction":
      return <Compaction before={rollout.calls[entry.before]} after={rollout.calls[entry.after]} call={entry.after} />;
  }
}

function Compaction({ before, after, call }: { before: Call | undefined; after: Call | undefined; call: number }) {
  const messages = before?.promptMessages ?? null;
  const [from, to] = [before?.promptTokens ?? null, after?.promptTokens ?? null];
  return (
    <p class="divider compaction" data-call={call} tabIndex={-1}>
      ⇊ compaction: {messages === null ? "" : `${counted(messages, "message")} → `}
      summary{from !== null && to !== null && `, ${count(from)} → ${count(to)} tokens`}
    </p>
  );
}

export function ContextMessage({ message }: { message: Message }) {
  const long = message.role === "system" && JSON.stringify(message.parts).length > 900;
  const head = (
    <>
      <span class="role">
        <Inline text={message.role} />
      </span>{" "}
      {message.name && <Inline text={message.name} />}
    </>
  );
  return (
    <div class="message context">
      {long ? (
        <details>
          <summary>{head}</summary>
          <Parts message={message} />
        </details>
      ) : (
        <>
          <div class="message-head">{head}</div>
          <Parts message={message} />
        </>
      )}
      <ToolCalls message={message} tools={[]} />
    </div>
  );
}

function TurnCard({ entry }: { entry: TurnEntry }) {
  const { rollout, color, path, turn: chosen, index, choose } = useContext(StoryContext);
  const turn = rollout.turns[entry.turn];
  const call = rollout.calls[turn?.call ?? -1];
  const message = entry.message === null ? null : (rollout.messages[entry.message] ?? null);
  if (!turn || !call) return null;
  const state = turn.verdict === null ? "trained" : turn.verdict === rollout.row.verdict ? "left-out" : "untrained";
  return (
    <div
      class={`message turn ${state}${chosen === entry.turn ? " chosen" : ""}`}
      data-turn={entry.turn}
      data-call={turn.call}
      data-state={state}
      data-mark={isCut(turn) || call.error !== null || turn.relation === "drift" ? "" : undefined}
      tabIndex={-1}
    >
      <TurnHead turn={turn} call={call} />
      {call.prompt === null && <p class="quiet">Nobody recorded what it was asked.</p>}
      {color === "off" ? (
        message ? (
          <Parts message={message} />
        ) : (
          <p class="quiet">Nobody recorded the message.</p>
        )
      ) : (
        <TurnTokenGrid
          path={path}
          turn={entry.turn}
          color={color}
          chosen={chosen === entry.turn ? index : null}
          onChoose={(next) => choose(entry.turn, next)}
          guess={(turn.completionTokens ?? 50) + 100}
        />
      )}
      {isCut(turn) && <p class="cut">✂ cut at the limit of tokens</p>}
      {call.error !== null && (
        <p class="status bad">
          ✕ <Inline text={call.error} />
        </p>
      )}
      {message && <ToolCalls message={message} tools={entry.tools} turn={entry.turn} />}
      {entry.blocks.map((block) => (
        <Agent block={block} />
      ))}
      {entry.rewards.map((at) => rollout.rewards[at] && <RewardNote reward={rollout.rewards[at]} />)}
    </div>
  );
}

const WORDS: Record<string, string> = {
  retry: "asked again",
  "n>1": "another choice",
  drift: "token drift",
  branch: "branch",
  rewritten: "messages rewritten",
  "other tools": "asked with other tools",
};

function TurnHead({ turn, call }: { turn: Turn; call: Call }) {
  const { address, choose, rollout } = useContext(StoryContext);
  const word = WORDS[turn.relation];
  // Of a rollout that is left out as a whole its head says why.
  const isWhole = turn.verdict === rollout.row.verdict;
  const step = turn.step !== rollout.turns[turn.turn - 1]?.step ? turn.step : null;
  return (
    <div class="message-head">
      <span class="role">turn {turn.turn}</span>
      {turn.agent !== null && <Tag text={turn.agent} />}
      {step !== null && <Tag text={`step ${step}`} />}
      {word && <Tag text={word} />}
      <button
        class={`plain state verdict ${turn.verdict === null ? "yes" : isWhole ? "quiet" : "no"}`}
        onClick={() => choose(turn.turn, null)}
      >
        {turn.verdict === null ? (
          rollout.advantage === 0 ? "● advantage 0" : "● trains"
        ) : isWhole ? (
          "not trained"
        ) : (
          <>
            ○{" "}
            <Inline
              text={turn.verdict === "marked untrained" && turn.markedUntrained ? turn.markedUntrained : turn.verdict}
            />
          </>
        )}
      </button>
      <span class="aside quiet">
        {call.promptTokens !== null &&
          `context ${count(call.promptTokens)}, answer ${turn.completionTokens === null ? "?" : count(turn.completionTokens)} tokens · `}
        {took(call)} ·{" "}
        <a href={address({ seen: turn.call })} aria-label={`Turn ${turn.turn} as the model saw it`}>
          as the model saw it
        </a>
      </span>
    </div>
  );
}

function Tag({ text }: { text: string }) {
  return (
    <span class="tag">
      <Inline text={text} />
    </span>
  );
}

function ToolCalls({ message, tools, turn }: { message: Message; tools: Tool[]; turn?: number }) {
  const { color, rollout } = useContext(StoryContext);
  const calls = message.parts.filter((part) => part.kind === "tool_call");
  return (
    <>
      {calls.map((part, index) => {
        const tool = tools[index];
        const ran = tool?.execution ?? null;
        const result =
          tool?.result === null || tool?.result === undefined ? null : (rollout.messages[tool.result] ?? null);
        const failed = tool?.failed ?? null;
        return (
          <div
            class={`tool${failed === null ? "" : " bad"}`}
            data-tool={turn === undefined ? undefined : `${turn}.${index}`}
            data-mark={failed === null ? undefined : ""}
            tabIndex={-1}
          >
            <div class="tool-head">
              <code>
                <b>
                  <Inline text={part.name ?? "a tool"} />
                </b>
              </code>
              {ran !== null && ran.durationMs !== null && <span class="quiet">{duration(ran.durationMs)}</span>}
              {failed !== null && (
                <span class="bad">
                  ✕ <Inline text={failed} />
                </span>
              )}
            </div>
            {(color === "off" || tool === undefined) && <Value text={part.text ?? ""} />}
            {tool?.blocks.map((block) => (
              <Agent block={block} tool={part.name ?? "a tool"} />
            ))}
            {(result !== null || (ran !== null && ran.result !== null)) && (
              <details class="result" open={color === "off"}>
                <summary>result</summary>
                {result && ran !== null && ran.result !== null && <span class="tag">what the model was given</span>}
                {result && <Parts message={result} />}
                {ran !== null && ran.result !== null && (
                  <>
                    {result && <span class="tag">what the tool recorded</span>}
                    <Value text={ran.result} />
                  </>
                )}
              </details>
            )}
          </div>
        );
      })}
    </>
  );
}

function Failed({ entry }: { entry: FailedEntry }) {
  const { rollout, address } = useContext(StoryContext);
  const call = rollout.calls[entry.call];
  if (!call) return null;
  const next = entry.next === null ? null : rollout.turns.find((turn) => turn.call === entry.next);
  const names = entry.results;
  return (
    <div
      class={`message${call.error === null ? "" : " failed-call"}`}
      data-call={entry.call}
      data-mark={call.error === null ? undefined : ""}
      tabIndex={-1}
    >
      <div class="message-head">
        {call.error === null ? (
          <span class="role">a call whose answer nobody recorded</span>
        ) : (
          <span class="role status bad">✕ failed call</span>
        )}
        {call.agent !== null && <Tag text={call.agent} />}
        <span class="aside quiet">
          {call.model !== null && (
            <>
              <Inline text={call.model} /> ·{" "}
            </>
          )}
          {call.promptMessages !== null && `${counted(call.promptMessages, "message")} · `}
          {call.promptTokens !== null && `${counted(call.promptTokens, "token")} · `}
          {took(call)} ·{" "}
          <a href={address({ seen: entry.call })} aria-label={`Failed call ${entry.call} as the model saw it`}>
            as the model saw it
          </a>
        </span>
      </div>
      {call.error !== null && <Block text={call.error} mono />}
      <p class="quiet">
        {names.length > 0 && (
          <>
            It was asked with the {names.length === 1 ? "result" : "results"} of <Inline text={names.join(" and ")} />{" "}
            above.{" "}
          </>
        )}
        {call.prompt === null && "Nobody recorded what it was asked. "}
        {entry.next === null ? (
          "Nothing followed."
        ) : next ? (
          <>
            {entry.again ? "Asked again: " : "Then came "}
            <a href={address({ t: next.turn })}>turn {next.turn}</a>.
          </>
        ) : (
          <>
            {entry.again ? "Asked again, and " : "Then "}
            <a href={address({ f: entry.next })}>another failed call</a>.
          </>
        )}
      </p>
    </div>
  );
}

function Agent({ block, tool }: { block: AgentEntry; tool?: string }) {
  const { rollout, turn } = useContext(StoryContext);
  const judge = tool === undefined && isJudge(rollout, block);
  const name = blockName(rollout, block, tool);
  const calls = block.calls.flatMap((call) => rollout.calls[call] ?? []);
  const failed = calls.filter((call) => call.error !== null).length;
  const turns = rollout.turns.filter((each) => block.calls.includes(each.call));
  const start = Math.min(...calls.map((call) => call.startMs));
  const end = Math.max(...calls.map((call) => call.endMs ?? call.startMs));
  const isOpen = (tool === undefined && block.agent === null) || failed > 0 || turns.some((each) => each.turn === turn);
  return (
    <details class={`agent${judge ? " judge" : ""}`} open={isOpen}>
      <summary title={visible(name)}>
        <b>
          <Inline text={name} />
        </b>{" "}
        <span class="quiet">
          {counted(turns.length, "turn")} · {duration(end - start)}
        </span>{" "}
        {failed > 0 && <span class="status bad">✕ {counted(failed, "failed call")}</span>}
      </summary>
      <Entries entries={block.entries} />
    </details>
  );
}
