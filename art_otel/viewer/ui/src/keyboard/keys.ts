// Single keys. A page registers its own; the newest that has a key gets it. A switch turns them all off (WCAG 2.1.4).
import { useLayoutEffect, useRef } from "preact/hooks";
import { load, save } from "../storage";

export type Keys = Record<string, () => void>;

const stack: { current: Keys }[] = [];

let on = load("keys") !== "off";

export function keysOn(): boolean {
  return on;
}

export function switchKeys(value: boolean): void {
  on = value;
  save("keys", value ? null : "off");
}

export function useKeys(keys: Keys): void {
  const reference = useRef(keys);
  reference.current = keys;
  // Before it is painted: who sees a page can use its keys.
  useLayoutEffect(() => {
    stack.push(reference);
    return () => void stack.splice(stack.indexOf(reference), 1);
  }, []);
}

/** Whether the element under the focus takes the key itself. */
function takes(target: EventTarget | null, key: string): boolean {
  if (!(target instanceof HTMLElement)) return false;
  const writes = "select, textarea, input:not([type=checkbox], [type=radio], [type=range])";
  return target.matches(key === "Enter" ? `${writes}, a, button, summary` : writes);
}

addEventListener("keydown", (event) => {
  if (!on || event.ctrlKey || event.metaKey || event.altKey || takes(event.target, event.key)) return;
  if (document.querySelector("dialog[open]")) return;
  for (let index = stack.length - 1; index >= 0; index--) {
    const action = stack[index]?.current[event.key];
    if (action) {
      event.preventDefault();
      action();
      return;
    }
  }
});
