// The rows in view and a few beside them: the page stays small whatever the dataset has.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Texts } from "../api/types";
import { useKeys } from "../keyboard/keys";
import { count } from "../format";
import { go } from "../route";
import { Failure } from "../text/unknown";
import { rolloutHash, type Column } from "./columns";
import { useRows, useTexts } from "./use_rows";

const BESIDE = 8;
const narrow = matchMedia("(max-width: 760px)");

const ARIA: Record<string, "ascending" | "descending"> = { asc: "ascending", desc: "descending" };
const SIGNS: Record<string, string> = { asc: " ↑", desc: " ↓" };

interface Props {
  query: string;
  columns: Column[];
  /** What is said where there is no row. */
  empty: string;
  at: number;
  sort: string;
  order: string;
  onSort: (sort: string) => void;
  onAt: (index: number) => void;
}

export function RowTable({ query, columns, empty, at, sort, order, onSort, onAt }: Props) {
  const orderOf = (name: string | undefined) => (name !== undefined && name === sort ? order : "");
  const scroller = useRef<HTMLDivElement>(null);
  const height = useRowHeight();
  const [top, setTop] = useState(0);
  const [room, setRoom] = useState(600);
  const [chosen, setChosen] = useState(at);
  const first = Math.max(0, Math.floor(top / height) - BESIDE);
  const last = Math.ceil((top + room) / height) + BESIDE;
  const rows = useRows(query, first, last);
  const hasTexts = columns.some(({ id }) => id === "asked" || id === "answer");
  const texts = useTexts(hasTexts ? query : null, first, last);
  const total = rows.total ?? 0;
  const grid = { gridTemplateColumns: columns.map(({ width }) => width).join(" ") };

  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setRoom(element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const known = rows.total !== null;
  useLayoutEffect(() => {
    // The place in the address, once there are rows to scroll over.
    if (known && scroller.current) scroller.current.scrollTop = Math.max(0, (at - 2) * height);
    setChosen(at);
  }, [query, known, height]);

  const move = (step: number) => {
    const index = Math.min(Math.max(chosen + step, 0), total - 1);
    if (index < 0 || !scroller.current) return;
    setChosen(index);
    onAt(index);
    const element = scroller.current;
    const head = element.querySelector<HTMLElement>(".rows-head")?.offsetHeight ?? 0;
    if (index * height < element.scrollTop) element.scrollTop = index * height;
    if ((index + 1) * height + head > element.scrollTop + element.clientHeight)
      element.scrollTop = (index + 1) * height + head - element.clientHeight;
    setTop(element.scrollTop);
    requestAnimationFrame(() =>
      element.querySelector<HTMLElement>(`[data-index="${index}"] a`)?.focus({ preventScroll: true }),
    );
  };
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    Enter: () => {
      const row = rows.row(chosen);
      if (row) go(rolloutHash(row, query));
    },
  });

  if (rows.error && rows.total === null) return <Failure says={rows.error} />;
  const indexes = Array.from({ length: Math.max(0, Math.min(last, total) - first) }, (_, index) => first + index);
  return (
    <>
      {rows.error && <Failure says={rows.error} />}
      <div
        class="rows"
        ref={scroller}
        tabIndex={0}
        role="region"
        aria-label="Rollouts"
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      >
        <div
          role="table"
          aria-label="Rollouts"
          aria-rowcount={total + 1}
          aria-colcount={columns.length}
          class="rows-table"
        >
          <div role="rowgroup" class="rows-head">
            <div role="row" aria-rowindex={1} class="row" style={grid}>
              {columns.map((column) => (
                <div
                  role="columnheader"
                  class={`cell cell-${column.id}${column.number ? " num" : ""}`}
                  aria-sort={ARIA[orderOf(column.sort)]}
                >
                  {column.sort === undefined ? (
                    column.title
                  ) : (
                    <button class="sort" onClick={() => onSort(column.sort ?? "")}>
                      {column.title}
                      <span aria-hidden="true">{SIGNS[orderOf(column.sort)]}</span>
                    </button>
                  )}
                </div>
              ))}
            </div>
          </div>
          <div role="rowgroup" class="rows-body" style={{ height: `${total * height}px` }}>
            {indexes.map((index) => {
              const row = rows.row(index);
              return (
                <div
                  key={index}
                  role="row"
                  aria-rowindex={index + 2}
                  data-index={index}
                  class={`row${index === chosen ? " chosen" : ""}${index % 2 ? " odd" : ""}`}
                  style={{ ...grid, top: `${index * height}px`, height: `${height}px` }}
                  onFocusIn={() => {
                    setChosen(index);
                    onAt(index);
                  }}
                >
                  {columns.map((column) => (
                    <div
                      role="cell"
                      class={`cell cell-${column.id}${column.number ? " num" : ""}`}
                      data-title={column.title}
                    >
                      {row ? (
                        column.cell(row, row.asked === undefined ? texts(index) : (row as Texts), query)
                      ) : column === columns[0] ? (
                        <span class="quiet loading-row">row {count(index + 1)} …</span>
                      ) : (
                        ""
                      )}
                    </div>
                  ))}
                </div>
              );
            })}
          </div>
        </div>
        {rows.total === 0 && <p class="notice">{empty}</p>}
      </div>
    </>
  );
}

function useRowHeight(): number {
  const [small, setSmall] = useState(narrow.matches);
  useEffect(() => {
    const changed = () => setSmall(narrow.matches);
    narrow.addEventListener("change", changed);
    return () => narrow.removeEventListener("change", changed);
  }, []);
  return small ? 122 : 34;
}
