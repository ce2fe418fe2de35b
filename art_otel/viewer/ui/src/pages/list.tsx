import { useState } from "preact/hooks";
import type { Info } from "../api/types";
import { count } from "../format";
import { FILTERS, Filters } from "../list/filters";
import { Save } from "../list/save";
import { RowTable } from "../list/table";
import { go, queryText, withQuery, type Query, type Route } from "../route";

const MOST_KEYS = 3;

export function ListPage({ route, info }: { route: Route; info: Info | null }) {
  const [total, setTotal] = useState<number | null>(null);
  const { query } = route;
  const list: Route = { parts: ["t"], query };
  const change = (changes: Query) => go(withQuery(list, { at: null, ...changes }), { replace: true });
  const sort = query.get("sort") ?? "";
  const order = query.get("order") ?? "asc";
  const asked = queryText({
    ...Object.fromEntries(FILTERS.map((name) => [name, query.get(name)])),
    sort,
    order: sort && order,
  });
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
        <h1>Trajectories</h1>
        <span class="quiet" role="status">
          {total === null ? "…" : count(total)}
        </span>
        <Save query={asked} />
      </div>
      <Filters query={query} onChange={change} />
      <RowTable
        query={asked}
        sources={info?.sources.length ?? 1}
        at={Number(query.get("at") ?? 0) || 0}
        sort={sort}
        order={order}
        onSort={onSort}
        onAt={(index) => history.replaceState(null, "", withQuery(list, { at: index || null }))}
        onTotal={setTotal}
      />
    </>
  );
}
