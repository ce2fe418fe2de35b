import { useState } from "preact/hooks";
import type { Group, Line } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { Advantage, rolloutHash, WentWrong } from "../list/columns";
import { count, counted, decimal, shortId } from "../format";
import { hashOf, queryText } from "../route";
import { Scroll } from "../text/columns";
import { Failure, Loading, Value } from "../text/unknown";
import { Inline, nodes, visible } from "../text/visible";
import { Derivation } from "./derivation";

/** The rollouts of a group side by side, the best first, from the first decision that parts good from bad. */
export function GroupSection({ id, plan }: { id: string; plan: string }) {
  const { answer: group, error } = useAnswer<Group>(`/api/groups/${id}${plan && `?${plan}`}`);
  if (!group) return error ? <Failure says={error} ways /> : <Loading />;
  const parts = group.parts === null ? undefined : group.lines[group.parts];
  const list = queryText({ group: id, sort: "reward", order: "desc", plan });
  return (
    <section class="group" aria-labelledby="group">
      <h2 id="group">
        Group <Inline text={group.groupId} />
        {group.step !== null && `, step ${count(group.step)}`}{" "}
        <span class="quiet">
          {counted(group.members.length, "rollout")}, the best first; underlined: words that the best did not say there
        </span>
      </h2>
      {group.advantage ? (
        <Derivation advantage={group.advantage} />
      ) : (
        <p class="quiet">
          No advantages: <Inline text={group.why ?? "there is none for this group"} />.
        </p>
      )}
      <Scroll label="Messages of the group side by side">
        <table class="beside">
          <Head group={group} list={list} />
          <tbody>
            {parts && (
              <>
                <Divider group={group} says="The first decision that parts good from bad" />
                <Row line={parts} group={group} list={list} />
                <Divider group={group} says="All of it" />
              </>
            )}
            {folded(group.lines).map((lines) => (
              <Lines lines={lines} group={group} list={list} />
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}

/** Lines that are equal for all stand together. */
function folded(lines: Line[]): Line[][] {
  const runs: Line[][] = [];
  for (const line of lines) {
    const last = runs[runs.length - 1];
    if (line.same && last?.[0]?.same) last.push(line);
    else runs.push([line]);
  }
  return runs;
}

function Head({ group, list }: { group: Group; list: string }) {
  const shown = group.members.slice(0, group.lines[0]?.cells.length ?? 0);
  return (
    <thead>
      <tr>
        {shown.map((row, at) => (
          <th scope="col">
            <a href={rolloutHash(row, list)} title={visible(row.rolloutId)}>
              <Inline text={shortId(row.rolloutId)} />
            </a>
            <br />
            <span class="num">
              <Value of={row.reward} as={(value) => decimal(value)} why="no reward was recorded" /> <Advantage row={row} of={group.advantage?.advantages[at]} />
            </span>{" "}
            <WentWrong row={row} />
          </th>
        ))}
      </tr>
    </thead>
  );
}

function Divider({ group, says }: { group: Group; says: string }) {
  return (
    <tr class="divider">
      <td colSpan={group.lines[0]?.cells.length ?? 1}>{says}</td>
    </tr>
  );
}

function Lines({ lines, group, list }: { lines: Line[]; group: Group; list: string }) {
  const [first] = lines;
  const [open, setOpen] = useState(false);
  if (!first?.same || open) return lines.map((line) => <Row line={line} group={group} list={list} />);
  return (
    <tr class="same">
      <td colSpan={first.cells.length}>
        <button class="plain" onClick={() => setOpen(true)}>
          {counted(lines.length, "equal message")}
        </button>
      </td>
    </tr>
  );
}

function Row({ line, group, list }: { line: Line; group: Group; list: string }) {
  if (line.same && line.cells[0])
    return (
      <tr class="same">
        <td colSpan={line.cells.length}>
          <span class="tag">{line.role}</span> <Inline text={line.cells[0].text || "(empty)"} />
        </td>
      </tr>
    );
  const best = new Set(line.cells[0]?.text.split(" "));
  return (
    <tr>
      {line.cells.map((cell, at) => (
        <td>
          {cell && (
            <a class="cell-text" href={hashOf(["r", group.members[at]?.key ?? ""], { t: cell.turn, list })}>
              <span class="tag">{line.role}</span>{" "}
              {line.cells[0] ? <Words text={cell.text} known={best} /> : <Inline text={cell.text || "(empty)"} />}
            </a>
          )}
        </td>
      ))}
    </tr>
  );
}

function Words({ text, known }: { text: string; known: Set<string> }) {
  const runs: [boolean, string][] = [];
  for (const word of text.split(" ")) {
    const last = runs[runs.length - 1];
    if (last?.[0] === known.has(word)) last[1] += ` ${word}`;
    else runs.push([known.has(word), word]);
  }
  return <bdi>{runs.map(([isKnown, said]) => (isKnown ? nodes(`${said} `) : <ins>{nodes(`${said} `)}</ins>))}</bdi>;
}
