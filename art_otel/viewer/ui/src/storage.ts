// What a reader chose for this browser. Over file:// or with cookies off it lasts as long as the page.

export function load(name: string): string | null {
  try {
    return localStorage.getItem(`art-otel.${name}`);
  } catch {
    return null;
  }
}

export function save(name: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(`art-otel.${name}`);
    else localStorage.setItem(`art-otel.${name}`, value);
  } catch {
    // Nothing to do: the choice holds for this page.
  }
}
