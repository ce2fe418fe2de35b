import type { Group, Info } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { count, counted, decimal, shortId, signed } from "../format";
import { Status, Verdict } from "../list/columns";
import { RewardOptions } from "../rollout/option_choice";
import { go, hashOf, queryText, withQuery, type Route } from "../route";
import { Columns, Scroll } from "../text/columns";
import { Failure, Loading, Unknown, Value } from "../text/unknown";
import { Inline, visible } from "../text/visible";
import { Derivation } from "./derivation";

export function GroupPage({ route, info }: { route: Route; info: Info | null }) {
  const { query } = route;
  const asked = queryText({ credit: query.get("credit"), advantage: query.get("advantage") });
  const { answer: group, error } = useAnswer<Group>(`/api/groups/${route.parts[1] ?? ""}${asked && `?${asked}`}`);
  if (!group) return error ? <Failure says={error} ways /> : <Loading />;
  return (
    <>
      <h1>
        Group <Inline text={group.groupId} />
      </h1>
      <p class="quiet">
        {counted(group.members.length, "rollout")}
        {group.step !== null && `, step ${count(group.step)}`} ·{" "}
        <a href={hashOf(["t"], { group: route.parts[1] })}>in the list</a>
      </p>
      <section aria-labelledby="advantage">
        <h2 id="advantage">How the advantage came about</h2>
        <RewardOptions
          info={info}
          query={query}
          onChange={(changes) => go(withQuery(route, changes), { replace: true })}
        />
        {group.advantage ? (
          <Derivation advantage={group.advantage} />
        ) : (
          <p class="notice">
            <strong>Unknown.</strong> <Inline text={group.why ?? "There is no advantage for this group."} />
          </p>
        )}
      </section>
      <section aria-labelledby="members">
        <h2 id="members">Members</h2>
        <Scroll label="Members of the group">
          <table class="members">
            <Columns of={["Rollout", "Status", ["Reward", "num"], ["Advantage", "num"], "Would train", ["Trained / sampled", "num"], ["Turns", "num"], "Differs at"]} />
            <tbody>
              {group.members.map((row, index) => (
                <tr>
                  <th scope="row">
                    <a href={hashOf(["r", row.key])} title={visible(row.rolloutId)}>
                      <Inline text={shortId(row.rolloutId)} />
                    </a>
                  </th>
                  <td>
                    <Status row={row} />
                  </td>
                  <td class="num">
                    <Value of={row.reward} as={(value) => decimal(value)} why="no reward was recorded" />
                  </td>
                  <td class="num">
                    <Value
                      of={group.advantage?.advantages[index]}
                      as={signed}
                      why={group.why ?? "without a reward there is none"}
                    />
                  </td>
                  <td>
                    <Verdict row={row} />
                  </td>
                  <td class="num">
                    <Value of={row.trainedTokens} as={count} /> / <Value of={row.sampledTokens} as={count} />
                  </td>
                  <td class="num">
                    <Value of={row.turns} as={count} />
                  </td>
                  <td>
                    {group.differsAt[index] === null || group.differsAt[index] === undefined ? (
                      <span class="quiet">–</span>
                    ) : (
                      `turn ${group.differsAt[index]}`
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      </section>
      <section aria-labelledby="beside">
        <h2 id="beside">Side by side</h2>
        <SideBySide group={group} />
      </section>
    </>
  );
}

function SideBySide({ group }: { group: Group }) {
  const known = group.differsAt.filter((turn) => turn !== null);
  const first = known.length > 0 ? Math.min(...known) : null;
  // The texts of a very large group are those of its first members.
  const shown = group.members.slice(0, group.steps[0]?.cells.length ?? 0);
  if (group.steps.length === 0) return <p class="notice">No member has a turn to compare.</p>;
  return (
    <>
      {shown.length < group.members.length && <p class="quiet">The first {count(shown.length)} members.</p>}
      <Scroll label="Turns of the members side by side">
        <table class="beside">
          <Columns
            of={[
              "Turn",
              ...shown.map((row) => (
                <>
                  <a href={hashOf(["r", row.key])} title={visible(row.rolloutId)}>
                    <Inline text={shortId(row.rolloutId)} />
                  </a>
                  <span class="quiet num">
                    {" "}
                    <Value of={row.reward} as={(value) => decimal(value)} />
                  </span>
                </>
              )),
            ]}
          />
          <tbody>
            {group.steps.map((step) => (
              <tr class={step.turn === first ? "first-difference" : ""}>
                <th scope="row">
                  {step.turn}
                  {step.turn === first && <span class="tag">first difference</span>}
                </th>
                {step.cells.map((cell, index) => (
                  <td>
                    {cell === null ? (
                      <span class="quiet">ended</span>
                    ) : (
                      <a
                        class="cell-text"
                        href={hashOf(["r", shown[index]?.key ?? "", "conversation"], { t: cell.turn })}
                      >
                        {cell.text === null ? (
                          <Unknown why="nobody recorded the message" />
                        ) : (
                          <Inline text={cell.text || "(empty)"} />
                        )}
                      </a>
                    )}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}
