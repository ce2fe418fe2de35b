import { useLayoutEffect, useRef, useState } from "preact/hooks";

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

export function columnsOf(width: number, count: number): Columns {
  const left = width < 560 ? 96 : 150;
  return { left, size: Math.max((width - left - 2) / Math.max(count, 1), 1) };
}
