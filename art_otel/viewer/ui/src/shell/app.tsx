import { useEffect, useRef, useState } from "preact/hooks";
import { isExported } from "../api/fetch_json";
import { followChanges } from "../api/generation";
import type { Info } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { Help } from "../keyboard/help";
import { useKeys } from "../keyboard/keys";
import { ComparePage } from "../pages/compare";
import { PairPage } from "../pages/pair";
import { GroupPage } from "../pages/group";
import { ListPage } from "../pages/list";
import { OverviewPage } from "../pages/overview";
import { PlanPage } from "../pages/plan";
import { RolloutPage } from "../pages/rollout";
import { RunsPage } from "../pages/runs";
import { VerifyPage } from "../pages/verify";
import { go, hashOf, useRoute, type Route } from "../route";
import { Failure } from "../text/unknown";
import { Changed } from "./changed";
import { Header } from "./header";

const TITLES: Record<string, string> = {
  "": "Overview",
  t: "Trajectories",
  r: "Rollout",
  g: "Group",
  compare: "Compare",
  pair: "Two rollouts",
  plan: "What would train",
  verify: "Verification",
  runs: "Runs",
};

export function App() {
  const route = useRoute();
  const [help, setHelp] = useState(false);
  const { answer: info, error } = useAnswer<Info>("/api/info");
  const page = route.parts[0] ?? "";
  const main = useRef<HTMLElement>(null);
  useKeys({
    "?": () => setHelp(true),
    "/": () => {
      const search = document.querySelector<HTMLInputElement>("input[type=search]");
      if (search) search.focus();
      else go(hashOf(["t"], { focus: "search" }));
    },
  });
  useEffect(() => {
    document.title = [TITLES[page], info?.name, "art-otel"].filter(Boolean).join(" · ");
  }, [page, info?.name]);
  const place = route.parts.slice(0, 2).join("/");
  const before = useRef(place);
  useEffect(() => {
    // A new page begins at its top, and the keyboard with it; what a page focused itself keeps the focus.
    if (before.current === place) return;
    before.current = place;
    scrollTo(0, 0);
    if (document.activeElement === document.body) main.current?.focus({ preventScroll: true });
  }, [place]);
  useEffect(() => {
    if (!isExported && info?.live) void followChanges();
  }, [info?.live]);
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to the content
      </a>
      <Header info={info} page={page} onHelp={() => setHelp(true)} />
      <Changed />
      <main id="main" ref={main} tabIndex={-1} class={`page page-${page || "overview"}`}>
        {error ? <Failure says={error} /> : <Page page={page} route={route} info={info} />}
      </main>
      <Help open={help} onClose={() => setHelp(false)} />
    </>
  );
}

function Page({ page, route, info }: { page: string; route: Route; info: Info | null }) {
  const key = route.parts[1] ?? "";
  switch (page) {
    case "":
      return <OverviewPage info={info} />;
    case "t":
      return <ListPage route={route} info={info} />;
    case "r":
      return <RolloutPage key={key} route={route} info={info} />;
    case "g":
      return <GroupPage key={key} route={route} info={info} />;
    case "compare":
      return <ComparePage route={route} />;
    case "pair":
      return <PairPage route={route} info={info} />;
    case "plan":
      return <PlanPage route={route} info={info} />;
    case "verify":
      return <VerifyPage />;
    case "runs":
      return <RunsPage route={route} />;
    default:
      return <Failure says="There is no such page." ways />;
  }
}
