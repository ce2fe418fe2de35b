import { isExported } from "../api/fetch_json";
import type { Info } from "../api/types";
import { count } from "../format";
import { hashOf, type Route } from "../route";
import { Inline } from "../text/visible";

export function Header({ info, route, onHelp }: { info: Info | null; route: Route; onHelp: () => void }) {
  const [page] = route.parts;
  const isRun = page === "" || page === "t";
  // From a rollout back to the list that one came from.
  const list = route.query.get("list");
  return (
    <header class="top">
      <a class="brand" href={list ? `#/t?${list}` : hashOf([""])} aria-current={isRun ? "page" : undefined}>
        <strong>art-otel</strong>
        {info && (
          <span class="dataset">
            <Inline text={info.sources.length > 4 ? `${info.sources.length} sources` : info.name} />
          </span>
        )}
        {!isRun && <span>← {list ? "the list" : "the run"}</span>}
      </a>
      {isExported && (
        <span class="badge" title="An exported file: it asks no server">
          {info?.chosen && info.chosen.rollouts < info.chosen.total
            ? `${count(info.chosen.rollouts)} of ${count(info.chosen.total)} rollouts`
            : "exported file"}
        </span>
      )}
      <button class="icon" onClick={onHelp} aria-label="Keyboard help" title="Keyboard help (?)">
        ?
      </button>
    </header>
  );
}
