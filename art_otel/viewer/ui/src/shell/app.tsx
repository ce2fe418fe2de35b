import { useEffect, useRef, useState } from "preact/hooks";
import { isExported } from "../api/fetch_json";
import { followChanges } from "../api/generation";
import type { Info } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { Help } from "../keyboard/help";
import { useKeys } from "../keyboard/keys";
import { RolloutPage } from "../pages/rollout";
import { RunPage } from "../pages/run";
import { VerifyPage } from "../pages/verify";
import { go, hashOf, useRoute, type Route } from "../route";
import { Failure } from "../text/unknown";
import { Header } from "./header";

const TITLES: Record<string, string> = {
  "": "Run",
  t: "Rollouts",
  r: "Rollout",
  verify: "Verification",
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
      else go(hashOf([""], { focus: "search" }));
    },
  });
  useEffect(() => {
    if (page === "r") return; // a rollout has a title of its own
    document.title = [TITLES[page], info?.name, "art-otel"].filter(Boolean).join(" · ");
  }, [page, info?.name]);
  // Charts and list are one place.
  const place = route.parts.slice(0, 2).join("/").replace(/^t$/, "");
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
          (document.querySelector<HTMLElement>(".story") ?? main.current)?.focus();
        }}
      >
        Skip to the content
      </a>
      <Header info={info} route={route} onHelp={() => setHelp(true)} />
      <main id="main" ref={main} tabIndex={-1} class={`page page-${page || "run"}`}>
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
    case "t":
      return <RunPage route={route} info={info} />;
    case "r":
      return <RolloutPage key={key} route={route} info={info} />;
    case "verify":
      return <VerifyPage />;
    default:
      return <Failure says="There is no such page." ways />;
  }
}
