import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { go, hashOf } from "../route";
import { visible } from "../text/visible";

export interface Line {
  run: string;
  name: string;
  steps: number[];
  values: (number | null)[];
  smoothed: (number | null)[];
}

const DASHES = [[], [8, 4], [2, 3], [8, 3, 2, 3], [12, 4], [4, 4], [1, 5], [12, 3, 3, 3]];

/** No tick stands between two steps. */
const WHOLE_STEPS = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000].flatMap((size) => [size, 2 * size, 5 * size]);

/** Lines over steps: each has a color, a dash and a name. A click opens the list of the step. */
export function Chart({ lines, metric }: { lines: Line[]; metric: string }) {
  const container = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = container.current;
    if (!element) return;
    const draw = () => {
      plot?.destroy();
      element.replaceChildren();
      plot = plotOf(element, lines, metric);
    };
    let plot: uPlot | undefined;
    draw();
    const observer = new ResizeObserver(() => plot?.setSize({ width: element.clientWidth, height: 320 }));
    observer.observe(element);
    addEventListener("themechange", draw);
    return () => {
      observer.disconnect();
      removeEventListener("themechange", draw);
      plot?.destroy();
    };
  }, [lines.map((line) => line.run + line.smoothed.join()).join(), metric]);
  return (
    <div
      class="chart"
      ref={container}
      role="img"
      aria-label={`${visible(metric)} over steps; the table below has the same numbers`}
    />
  );
}

function plotOf(element: HTMLElement, lines: Line[], metric: string): uPlot {
  const style = getComputedStyle(document.documentElement);
  const color = (name: string) => style.getPropertyValue(name).trim();
  const steps = [...new Set(lines.flatMap((line) => line.steps))].sort((a, b) => a - b);
  const data = lines.map((line) => {
    const values = new Map(line.steps.map((step, index) => [step, line.smoothed[index] ?? null]));
    return steps.map((step) => values.get(step) ?? null);
  });
  const axis = {
    stroke: color("--quiet"),
    grid: { stroke: color("--line"), width: 1 },
    ticks: { stroke: color("--line"), width: 1 },
  };
  const plot = new uPlot(
    {
      width: element.clientWidth,
      height: 320,
      scales: { x: { time: false } },
      axes: [
        { ...axis, label: "step", labelSize: 20, incrs: WHOLE_STEPS },
        { ...axis, size: 60 },
      ],
      series: [
        { label: "step" },
        ...lines.map((line, index) => ({
          label: visible(line.name),
          stroke: color(`--run${index % 8}`),
          width: 2,
          dash: DASHES[index % 8],
          spanGaps: true,
          points: { show: steps.length < 60 },
        })),
      ],
      cursor: { drag: { x: true, y: false } },
      legend: { live: true },
    },
    [steps, ...data] as uPlot.AlignedData,
    element,
  );
  plot.over.title = `${visible(metric)}: a click opens the trajectories of the step`;
  let pressed = 0;
  plot.over.addEventListener("mousedown", (event) => {
    pressed = event.clientX;
  });
  plot.over.addEventListener("click", (event) => {
    if (Math.abs(event.clientX - pressed) > 3) return;
    const step = steps[plot.posToIdx(event.clientX - plot.over.getBoundingClientRect().left)];
    if (step !== undefined) go(hashOf(["t"], { step }));
  });
  return plot;
}
