import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Run } from "../api/types";
import { visible } from "../text/visible";

/** The width of an element in pixels: drawings are made for it, so that their texts keep their size. */
export function useWidth<T extends HTMLElement>() {
  const element = useRef<T>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const observed = element.current;
    if (!observed) return;
    const observer = new ResizeObserver(() => setWidth(observed.clientWidth));
    setWidth(observed.clientWidth);
    observer.observe(observed);
    return () => observer.disconnect();
  }, []);
  return { element, width };
}

/** Where columns stand: behind the names of tasks, so that charts share their axis. */
export interface Columns {
  left: number;
  size: number;
}

export function unitOf({ kind }: Run["axis"]): string {
  return kind === "version" ? "policy version" : kind;
}

/** Labels in equal distances where they have room, and the last. */
export function AxisLabels({ labels, width, y }: { labels: string[]; width: number; y: number }) {
  const { left, size } = columnsOf(width, labels.length);
  const every = Math.ceil((16 + 7 * Math.min(14, Math.max(...labels.map((label) => label.length)))) / size);
  const last = labels.length - 1;
  return labels.map(
    (label, column) =>
      (column === last || (column % every === 0 && last - column >= every)) && (
        <text x={Math.min(left + (column + 0.5) * size, width - 3.4 * label.length)} y={y} text-anchor="middle">
          {visible(label).slice(0, 14)}
        </text>
      ),
  );
}

export function columnsOf(width: number, count: number): Columns {
  const left = width < 560 ? 96 : 150;
  return { left, size: Math.max((width - left - 2) / Math.max(count, 1), 1) };
}
