import { useEffect, useState } from "preact/hooks";
import type { Info } from "../api/types";
import { go, queryText, withQuery, type Query, type Route } from "../route";
import { chosenBy } from "../run/filters";
import { COLUMNS, chooseColumns, chosenColumns } from "./columns";
import { Save } from "./save";
import { RowTable } from "./table";

const MOST_KEYS = 3;

/** The rollouts that the filters leave, in place of the charts. */
export function RunList({ route, info }: { route: Route; info: Info | null }) {
  const sources = info?.sources.length ?? 1;
  const [columns, setColumns] = useState(chosenColumns(sources));
  useEffect(() => setColumns(chosenColumns(sources)), [sources]);
  const { query } = route;
  const list: Route = { parts: ["t"], query };
  const change = (changes: Query) => go(withQuery(list, { at: null, ...changes }), { replace: true });
  const sort = query.get("sort") ?? "";
  const order = query.get("order") ?? "asc";
  const asked = queryText({ ...chosenBy(query), sort, order: sort && order });
  const onSort = (column: string, isFurther: boolean) => {
    // First the largest, then the smallest, then without it. With Shift the column decides where others are equal.
    const keys = sort === "" ? [] : sort.split(",").map((name, at) => ({ name, order: order.split(",")[at] ?? "asc" }));
    const now = keys.find(({ name }) => name === column)?.order;
    const next = now === undefined ? "desc" : now === "desc" ? "asc" : null;
    const changed = next === null ? [] : [{ name: column, order: next }];
    const sorted = !isFurther
      ? changed
      : now === undefined
        ? [...keys, ...changed].slice(-MOST_KEYS)
        : keys.flatMap((key) => (key.name === column ? changed : [key]));
    change({
      sort: sorted.map(({ name }) => name).join(",") || null,
      order: sorted.map((key) => key.order).join(",") || null,
    });
  };
  return (
    <>
      <div class="list-head">
        <Save query={asked} />
        <details class="chooser">
          <summary>Columns</summary>
          <fieldset>
            <legend class="hidden">Columns of the list</legend>
            {COLUMNS.map(({ id, title }) => (
              <label class="check">
                <input
                  type="checkbox"
                  checked={columns.some((column) => column.id === id)}
                  onChange={(event) => {
                    const ids = columns.map((column) => column.id).filter((each) => each !== id);
                    chooseColumns(event.currentTarget.checked ? [...ids, id] : ids);
                    setColumns(chosenColumns(sources));
                  }}
                />
                {title}
              </label>
            ))}
          </fieldset>
        </details>
      </div>
      <RowTable
        query={asked}
        columns={columns}
        at={Number(query.get("at") ?? 0) || 0}
        sort={sort}
        order={order}
        onSort={onSort}
        onAt={(index) => history.replaceState(null, "", withQuery(list, { at: index || null }))}
      />
    </>
  );
}
