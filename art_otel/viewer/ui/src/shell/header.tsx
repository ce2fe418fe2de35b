import { useState } from "preact/hooks";
import { isExported } from "../api/fetch_json";
import type { Info } from "../api/types";
import { count } from "../format";
import { hashOf } from "../route";
import { Inline } from "../text/visible";
import { THEMES, chooseTheme, chosenTheme, type Theme } from "./theme";

export function Header({ info, page, onHelp }: { info: Info | null; page: string; onHelp: () => void }) {
  const links: [string, string, string[]][] = [
    ["Overview", hashOf([""]), [""]],
    ["Trajectories", hashOf(["t"]), ["t", "r", "g"]],
    ["What would train", hashOf(["plan"]), ["plan"]],
    ["Verification", hashOf(["verify"]), ["verify"]],
  ];
  if (!isExported) links.push(["Compare", hashOf(["compare"]), ["compare", "pair"]]);
  if (info?.hasRuns && !isExported) links.push(["Runs", hashOf(["runs"]), ["runs"]]);
  return (
    <header class="top">
      <div class="brand">
        <strong>art-otel</strong>
        {info && (
          <span class="dataset">
            <Inline text={info.name} />
          </span>
        )}
        {isExported && (
          <span class="badge" title="An exported file: it asks no server">
            {info?.chosen && info.chosen.rollouts < info.chosen.total
              ? `${count(info.chosen.rollouts)} of ${count(info.chosen.total)} rollouts`
              : "exported file"}
          </span>
        )}
      </div>
      <nav aria-label="Pages">
        {links.map(([text, href, pages]) => (
          <a href={href} aria-current={pages.includes(page) ? "page" : undefined}>
            {text}
          </a>
        ))}
      </nav>
      <div class="tools">
        <ThemeChoice />
        <button class="icon" onClick={onHelp} aria-label="Keyboard help" title="Keyboard help (?)">
          ?
        </button>
      </div>
    </header>
  );
}

function ThemeChoice() {
  const [theme, setTheme] = useState<Theme>(chosenTheme());
  return (
    <label class="theme">
      <span class="hidden">Colors of the page</span>
      <select
        value={theme}
        onChange={(event) => {
          const chosen = event.currentTarget.value as Theme;
          chooseTheme(chosen);
          setTheme(chosen);
        }}
      >
        {THEMES.map((name) => (
          <option value={name}>{name === "system" ? "System colors" : name === "light" ? "Light" : "Dark"}</option>
        ))}
      </select>
    </label>
  );
}
