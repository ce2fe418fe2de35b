// Light, dark, or as the system has it.
import { load, save } from "../storage";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

export function chosenTheme(): Theme {
  return THEMES.find((theme) => theme === load("theme")) ?? "system";
}

export function applyTheme(theme: Theme = chosenTheme()): void {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function chooseTheme(theme: Theme): void {
  save("theme", theme === "system" ? null : theme);
  applyTheme(theme);
  dispatchEvent(new Event("themechange"));
}
