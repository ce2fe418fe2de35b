// Light, dark, or as the system has it.
import { load, save } from "../storage";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

let chosen: Theme = THEMES.find((theme) => theme === load("theme")) ?? "system";

export function chosenTheme(): Theme {
  return chosen;
}

export function chooseTheme(theme: Theme): void {
  chosen = theme;
  save("theme", theme === "system" ? null : theme);
  showTheme();
}

// From now on the page follows the system.
export function startTheme(): void {
  systemIsDark.addEventListener("change", showTheme);
  showTheme();
}

function showTheme(): void {
  document.documentElement.dataset.theme = chosen === "system" ? (systemIsDark.matches ? "dark" : "light") : chosen;
  dispatchEvent(new Event("themechange"));
}
