import { useState } from "preact/hooks";
import type { Run } from "../api/types";
import { counted, decimal } from "../format";
import { visible } from "../text/visible";
import { AxisLabels, columnsOf, unitOf, useWidth } from "./axis";

const [HEIGHT, TOP, FOOT] = [150, 12, 20];

interface Props {
  run: Run;
  onColumns: (first: number, last: number) => void;
}

/** Reward over steps, with the share of groups that teach. A drag, or arrow keys and Enter, choose steps. */
export function Steps({ run, onColumns }: Props) {
  const { element, width } = useWidth<HTMLDivElement>();
  const [span, setSpan] = useState<[number, number] | null>(null);
  const { labels, kind } = run.axis;
  const { left, size } = columnsOf(width, labels.length);
  const known = run.series.flatMap(({ reward }) => reward.filter((value) => value !== null));
  const inUnit = known.every((value) => value >= 0 && value <= 1);
  const [low, high] = inUnit ? [0, 1] : [Math.min(...known), Math.max(...known)];
  const x = (column: number) => left + (column + 0.5) * size;
  const y = (value: number) => TOP + HEIGHT * (1 - (value - low) / (high - low || 1));
  const share = (value: number) => TOP + HEIGHT * (1 - value);
  const at = (event: PointerEvent) => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    return Math.min(Math.max(Math.floor((event.clientX - box.left - left) / size), 0), labels.length - 1);
  };
  const path = (values: (number | null)[], to: (value: number) => number) => {
    let pen = "M";
    return values
      .map((value, column) => {
        if (value === null) return "";
        const part = `${pen}${x(column).toFixed(1)},${to(value).toFixed(1)}`;
        pen = "L";
        return part;
      })
      .join("");
  };
  const [main] = run.series;
  const over = run.learned[0]?.over ?? 1;
  const gradient = main?.gradient?.some((value) => value !== null) ? main.gradient : null;
  const current = span?.[1] ?? labels.length - 1;
  const says = (column: number) => {
    const rewards = run.series
      .map((series) => {
        const name = [run.series.length > 1 && series.split, series.source].filter(Boolean).join(" of ");
        const reward = series.reward[column];
        return `${name && `${name} `}${reward === null || reward === undefined ? "no reward" : decimal(reward, 3)}`;
      })
      .join(", ");
    const part = gradient?.[column];
    const teaches = part === null || part === undefined ? "" : `; ${Math.round(100 * part)}% of groups with a gradient`;
    return visible(`${kind} ${labels[column] ?? ""}: ${rewards}${teaches}`);
  };
  return (
    <section class="chart" aria-labelledby="steps">
      <h2 id="steps">
        Reward by {unitOf(run.axis)}{" "}
        <span class="quiet">
          <span class="key line" /> mean
          {over > 1 && ` over ${counted(over, unitOf(run.axis))}, thin: ${run.axis.size === 1 ? `each ${unitOf(run.axis)}` : `every ${run.axis.size}`}`}
          {gradient && (
            <>
              , <span class="key area" /> share of groups with a gradient, 0 to 100%
            </>
          )}
          {run.series.some(({ split }) => split === "held out") && ", dashed: val"}
        </span>
      </h2>
      <div ref={element}>
        {width > 0 && known.length > 0 && (
          <svg
            width={width}
            height={HEIGHT + TOP + FOOT}
            tabIndex={0}
            role="slider"
            aria-label={`Reward by ${kind}: arrow keys move, with Shift they choose several, Enter filters`}
            aria-valuemin={0}
            aria-valuemax={labels.length - 1}
            aria-valuenow={current}
            aria-valuetext={says(current)}
            onPointerDown={(event) => {
              event.currentTarget.setPointerCapture(event.pointerId);
              setSpan([at(event), at(event)]);
            }}
            onPointerMove={(event) => {
              if (event.buttons & 1 && span) setSpan([span[0], at(event)]);
            }}
            onPointerUp={() => {
              if (span) onColumns(Math.min(...span), Math.max(...span));
              setSpan(null);
            }}
            onBlur={() => setSpan(null)}
            onKeyDown={(event) => {
              const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
              if (event.key === "Enter") onColumns(Math.min(...(span ?? [current])), Math.max(...(span ?? [current])));
              if (step === undefined) return;
              event.preventDefault();
              const next = Math.min(Math.max(current + step, 0), labels.length - 1);
              setSpan([event.shiftKey && span ? span[0] : next, next]);
            }}
          >
            {[low, (low + high) / 2, high].map((value) => (
              <>
                <line class="grid" x1={left} x2={width} y1={y(value)} y2={y(value)} />
                <text x={left - 6} y={y(value) + 4} text-anchor="end">
                  {decimal(value, 2)}
                </text>
              </>
            ))}
            {gradient && (
              <path
                class="area"
                d={`M${x(0)},${share(0)}${gradient.map((value, column) => `L${x(column).toFixed(1)},${share(value ?? 0).toFixed(1)}`).join("")}L${x(labels.length - 1)},${share(0)}Z`}
              />
            )}
            {run.series.map((series, index) => {
              const only = series.reward.filter((value) => value !== null).length === 1;
              return (
                <g class={`run${index % 8}${series.split === "held out" ? " dashed" : ""}`}>
                  <path class="thin" d={path(series.reward, y)} />
                  <path class="line" d={path(series.smooth, y)} />
                  {only && series.smooth.map((value, column) => value !== null && <circle cx={x(column)} cy={y(value)} r={4} />)}
                </g>
              );
            })}
            <AxisLabels labels={labels} width={width} y={TOP + HEIGHT + 15} />
            {span && (
              <>
                <rect
                  class="brush"
                  x={x(Math.min(...span)) - size / 2}
                  y={TOP}
                  width={(Math.abs(span[1] - span[0]) + 1) * size}
                  height={HEIGHT}
                />
                <text class="brushed" x={left + 4} y={TOP + 10}>
                  {says(span[1])}
                </text>
              </>
            )}
          </svg>
        )}
      </div>
      {known.length === 0 && <p class="quiet">No rollout here has a reward.</p>}
      {run.series.length > 1 && (
        <p class="legend">
          {run.series.map((series, index) => (
            <span class={`run${index % 8}`}>
              <span class="key line" /> {[series.split === "held out" ? "val" : series.split, visible(series.source ?? "")].filter(Boolean).join(" of ")}
            </span>
          ))}
        </p>
      )}
    </section>
  );
}
