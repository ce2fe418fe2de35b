// Every view has an address: `#/page/part…?name=value`. The same addresses work in the exported file.
import { useEffect, useState } from "preact/hooks";

export interface Route {
  parts: string[];
  query: URLSearchParams;
}

export type Query = Record<string, string | number | boolean | null | undefined>;

export function parseHash(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { parts: path.split("/").map(decode), query: new URLSearchParams(query) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Write an address; what is empty is left out, so that one view has one address. An empty split asks for none. */
export function hashOf(parts: (string | number)[], query: Query = {}): string {
  const path = parts.map((part) => encodeURIComponent(part)).join("/");
  const text = queryText(query);
  return `#/${path}${text && `?${text}`}`;
}

export function queryText(query: Query): string {
  const pairs = Object.entries(query).filter(
    ([name, value]) => value !== null && value !== undefined && value !== false && (value !== "" || name === "split"),
  );
  return new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
}

export function go(hash: string, { replace = false } = {}): void {
  if (hash === location.hash) return;
  if (replace) {
    history.replaceState(null, "", hash);
    dispatchEvent(new Event("hashchange"));
  } else {
    location.hash = hash;
  }
}

/** The same page with some values of its query changed. */
export function withQuery(route: Route, changes: Query): string {
  return hashOf(route.parts, { ...Object.fromEntries(route.query), ...changes });
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseHash(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parseHash(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
