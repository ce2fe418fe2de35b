import { useEffect, useState } from "preact/hooks";
import type { Info } from "../api/types";
import { go, queryText, withQuery, type Query, type Route } from "../route";
import { chosenBy, noRollout } from "../run/filters";
import { COLUMNS, chooseColumns, chosenColumns } from "./columns";
import { Save } from "./save";
import { RowTable } from "./table";

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
  // First the largest, then the smallest, then without it.
  const onSort = (column: string) => {
    const next = column !== sort ? "desc" : order === "desc" ? "asc" : null;
    change({ sort: next && column, order: next });
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
        empty={noRollout(Object.keys(chosenBy(query, [])).length === 0)}
        at={Number(query.get("at") ?? 0) || 0}
        sort={sort}
        order={order}
        onSort={onSort}
        onAt={(index) => history.replaceState(null, "", withQuery(list, { at: index || null }))}
      />
    </>
  );
}
