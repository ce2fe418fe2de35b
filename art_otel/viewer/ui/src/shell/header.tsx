import { useState } from "preact/hooks";
import { isAnswered, isExported } from "../api/fetch_json";
import type { Info } from "../api/types";
import { hashOf } from "../route";
import { Inline } from "../text/visible";
import { THEMES, chooseTheme, chosenTheme, type Theme } from "./theme";

export function Header({ info, page, onHelp }: { info: Info | null; page: string; onHelp: () => void }) {
  // A file of a selection has no answers about the whole dataset.
  const links: [string, string, string[]][] = [["Trajectories", hashOf(["t"]), ["t", "r", "g"]]];
  if (isAnswered("/api/overview")) links.unshift(["Overview", hashOf([""]), [""]]);
  if (isAnswered("/api/plan")) links.push(["What would train", hashOf(["plan"]), ["plan"]]);
  if (isAnswered("/api/compare")) links.push(["Compare", hashOf(["compare"]), ["compare", "pair"]]);
  if (info?.hasRuns && isAnswered("/api/runs")) links.push(["Runs", hashOf(["runs"]), ["runs"]]);
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
          <span class="badge" title="One file: it asks no server">
            exported file
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
