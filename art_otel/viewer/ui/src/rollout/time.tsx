import type { TimeBar } from "../api/types";
import { duration } from "../format";
import type { TabProps } from "../pages/rollout";
import { Columns, Scroll } from "../text/columns";
import { Inline, visible } from "../text/visible";

export function TimeTab({ rollout, info, address }: TabProps) {
  const bars = rollout.time;
  if (bars.length === 0) return <p class="notice">Times are unknown: no call of this rollout has one.</p>;
  const whole = Math.max(rollout.totalMs ?? 0, ...bars.map((bar) => bar.endMs ?? bar.startMs), 1);
  return (
    <>
      {!info?.hasSpans && (
        <p class="quiet">
          Calls, tools, steps and rewards, which are in the dataset. <code>art-otel view … --spans DUMPS</code> adds all
          other spans.
        </p>
      )}
      <Scroll label="Waterfall">
        <table class="time">
          <Columns
            of={[
              "What",
              ["Start", "num"],
              ["Took", "num"],
              <span class="ticks">
                <span>0</span>
                <span>{duration(whole / 2)}</span>
                <span>{duration(whole)}</span>
              </span>,
            ]}
          />
          <tbody>
            {bars.map((bar) => (
              <BarRow
                bar={bar}
                whole={whole}
                href={bar.turn === null ? null : address("conversation", { t: bar.turn })}
              />
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}

function BarRow({ bar, whole, href }: { bar: TimeBar; whole: number; href: string | null }) {
  const end = bar.endMs ?? (bar.kind === "reward" ? bar.startMs : whole);
  const name = bar.name === null ? <span class="unknown">no name</span> : <Inline text={bar.name} />;
  return (
    <tr>
      <th scope="row">
        <span class="time-name" style={{ paddingLeft: `${Math.min(bar.depth, 8) * 14}px` }}>
          <span class={`kind kind-${bar.kind}`}>{bar.kind}</span> {href ? <a href={href}>{name}</a> : name}
          {bar.agent !== null && (
            <>
              {" "}
              <span class="tag">
                <Inline text={bar.agent} />
              </span>
            </>
          )}
          {bar.error !== null && (
            <span class="status bad" title={visible(bar.error)}>
              {" "}
              ✕ <Inline text={bar.error.length > 60 ? `${bar.error.slice(0, 60)}…` : bar.error} />
            </span>
          )}
        </span>
      </th>
      <td class="num">{duration(bar.startMs)}</td>
      <td class="num">
        {bar.kind === "reward" ? (
          ""
        ) : bar.endMs === null ? (
          <span class="unknown">no end</span>
        ) : (
          duration(bar.endMs - bar.startMs)
        )}
      </td>
      <td class="track">
        <div>
          <i
            class={`bar bar-${bar.kind}${bar.endMs === null && bar.kind !== "reward" ? " open" : ""}${bar.error === null ? "" : " bad"}`}
            style={{ left: `${(100 * bar.startMs) / whole}%`, width: `${(100 * (end - bar.startMs)) / whole}%` }}
          />
        </div>
      </td>
    </tr>
  );
}
