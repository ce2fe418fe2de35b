import { useEffect, useRef } from "preact/hooks";
import type { Info } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { count, counted, decimal } from "../format";
import { useKeys } from "../keyboard/keys";
import { Head } from "../rollout/head";
import { Outline } from "../rollout/outline";
import { Raw } from "../rollout/raw";
import { ContextMessage, Entries, StoryContext } from "../rollout/story";
import { askTokens, COLORS, Legend, type Color } from "../rollout/tokens";
import type { Rollout } from "../rollout/types";
import { Why } from "../rollout/why";
import { go, hashOf, queryText, type Query, type Route } from "../route";
import { Failure, Loading } from "../text/unknown";
import { Inline, visible } from "../text/visible";

/** One rollout: its outline, its story, and why a message or a token of it is trained. */
export function RolloutPage({ route, info }: { route: Route; info: Info | null }) {
  const { query } = route;
  const [place = "", key = ""] = route.parts;
  const list = query.get("list");
  const { answer: rollout, error } = useAnswer<Rollout>(`/api/rollouts/${key}${list ? `?${queryText({ list })}` : ""}`);
  // The options under which the list is judged judge the rollout too.
  const plan = new URLSearchParams(list ?? "").get("plan") ?? "";
  const color: Color = COLORS.find((each) => each === query.get("c")) ?? "off";
  const kept = { list, c: color === "off" ? null : color };
  const number = (name: string) => (query.has(name) ? Number(query.get(name)) : null);
  const [turn, index, seen] = [number("t"), number("i"), number("seen")];
  const address = (to: Query) => hashOf([place, key], { ...kept, ...to });
  const other = (id: string) => hashOf([place, id], { ...kept });
  const choose = (of: number, token: number | null) =>
    go(address({ t: of, i: token, why: token === null ? 1 : null }), { replace: true });
  const isWhy = turn !== null && (index !== null || query.has("why"));
  const path = `/api/rollouts/${key}/tokens${plan && `?${plan}`}`;
  const story = useRef<HTMLDivElement>(null);
  useTitle(rollout);
  useEffect(() => {
    if (!rollout || !story.current) return;
    const [failed, tool] = [query.get("f"), query.get("tool")];
    const chosen =
      tool !== null
        ? `[data-tool="${turn}.${tool}"]`
        : turn !== null
          ? `[data-turn="${turn}"]`
          : failed !== null && `[data-call="${failed}"]`;
    const element = chosen ? story.current.querySelector<HTMLElement>(chosen) : null;
    // The first stop of the tab key is then in the story.
    if (!element) return story.current.focus({ preventScroll: true });
    openAround(element);
    if (index === null && !query.has("why")) element.scrollIntoView({ block: "start" });
    if (index === null) element.focus({ preventScroll: true });
  }, [rollout?.row.key, turn, query.get("f"), query.get("tool"), seen]);
  const move = (selector: string, step: 1 | -1) => {
    const all = [...(story.current?.querySelectorAll<HTMLElement>(selector) ?? [])];
    const at = all.indexOf(document.activeElement as HTMLElement);
    const next = at >= 0 ? all[at + step] : step > 0 ? all.find(isBelow) : all.filter((each) => !isBelow(each)).pop();
    if (!next) return;
    openAround(next);
    next.scrollIntoView({ block: "start" });
    next.focus({ preventScroll: true });
  };
  const step = (id: string | null | undefined) => id && go(other(id));
  useKeys({
    j: () => step(rollout?.next),
    k: () => step(rollout?.previous),
    "[": () => step(rollout?.groupPrevious),
    "]": () => step(rollout?.groupNext),
    J: () => move("[data-mark]", 1),
    K: () => move("[data-mark]", -1),
    n: () => move('[data-state="trained"]', 1),
    p: () => move('[data-state="trained"]', -1),
    c: () =>
      go(address({ t: turn, i: index, c: COLORS[(COLORS.indexOf(color) + 1) % COLORS.length] }), { replace: true }),
    End: () => toTheEnd(),
  });
  if (!rollout) return error ? <Failure says={error} ways /> : <Loading />;
  const chosen = turn === null ? undefined : rollout.turns[turn];
  const call = seen === null ? undefined : rollout.calls[seen];
  return (
    <StoryContext.Provider value={{ rollout, color, path, turn, index, address, choose }}>
      {error && <Failure says={`${error} What is shown is from before the dataset changed.`} />}
      <Head rollout={rollout} info={info} address={address} other={other} />
      <div class={isWhy && chosen ? "rollout with-why" : "rollout"}>
        <div class="story" ref={story} tabIndex={-1} role="region" aria-label="Story">
          <div class="story-bar">
            <fieldset class="segments">
              <legend class="hidden">Tokens</legend>
              {COLORS.map((name) => (
                <label
                  class={name === color ? "on" : ""}
                  onPointerEnter={() => name !== "off" && void askTokens(path, turn ?? 0).catch(() => null)}
                >
                  <input
                    type="radio"
                    name="color"
                    checked={name === color}
                    onChange={() =>
                      go(address({ t: turn, i: index, c: name === "off" ? null : name }), { replace: true })
                    }
                  />
                  {name === "off" ? "text" : name}
                </label>
              ))}
            </fieldset>
            {color !== "off" && rollout.turns.length > 0 && <Legend path={path} color={color} turn={turn ?? 0} />}
            {plan !== "" && (
              <span class="quiet">
                with <Inline text={plan.replaceAll("&", ", ")} />
              </span>
            )}
          </div>
          {query.has("raw") ? (
            <Raw path={`/api/rollouts/${key}/raw`} calls={rollout.calls} />
          ) : call && seen !== null ? (
            <>
              <p class="divider">
                Call {seen} as the model saw it:{" "}
                {call.promptMessages !== null && counted(call.promptMessages, "message")}
                {call.promptTokens !== null && `, ${count(call.promptTokens)} tokens`}.{" "}
                <a href={address(storyOf(rollout, seen))}>Back to the story</a>
              </p>
              {promptOf(rollout, call.prompt).map((message) => (
                <ContextMessage message={message} />
              ))}
              {call.prompt === null && <p class="notice">Nobody recorded what it was asked.</p>}
            </>
          ) : rollout.story.length === 0 ? (
            <p class="notice">This rollout has no call.</p>
          ) : (
            <Entries entries={rollout.story} />
          )}
        </div>
        <Outline rollout={rollout} address={address} turn={turn} />
        {isWhy && chosen && (
          <Why path={path} turn={chosen} index={index} onClose={() => go(address({ t: turn }), { replace: true })} />
        )}
      </div>
    </StoryContext.Provider>
  );
}

function useTitle(rollout: Rollout | null): void {
  useEffect(() => {
    if (!rollout) return;
    const { name, rolloutId, reward } = rollout.row;
    document.title = `${visible(name ?? rolloutId)} · ${reward === null ? "no reward" : decimal(reward)} · art-otel`;
  });
}

/** The messages of a prompt as they were sent. */
function promptOf({ nodes, messages }: Rollout, end: number | null): Rollout["messages"] {
  const prompt: Rollout["messages"] = [];
  for (let at = end; at !== null && at >= 0; at = nodes[at]?.[0] ?? null) {
    const message = messages[nodes[at]?.[1] ?? -1];
    if (message) prompt.push(message);
  }
  return prompt.reverse();
}

function storyOf(rollout: Rollout, call: number): Query {
  const turn = rollout.turns.find((each) => each.call === call);
  return turn ? { t: turn.turn } : { f: call };
}

function openAround(element: HTMLElement): void {
  for (let at = element.parentElement?.closest("details"); at; at = at.parentElement?.closest("details"))
    at.open = true;
}

function isBelow(element: HTMLElement): boolean {
  return element.getBoundingClientRect().top > 100;
}

/** Heights of what was never in view are guessed, so the end moves while one goes there. */
function toTheEnd(frames = 15): void {
  scrollTo(0, document.documentElement.scrollHeight);
  if (frames > 0) requestAnimationFrame(() => toTheEnd(frames - 1));
}
