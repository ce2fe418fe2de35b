import type { ComponentChildren } from "preact";
import { Inline } from "./visible";

/** What nobody knows, said as such. */
export function Unknown({ why }: { why?: string }) {
  return (
    <span class="unknown" title={why}>
      unknown
    </span>
  );
}

/** A value, or that it is unknown. */
export function Value<T>({
  of,
  as,
  why,
}: {
  of: T | null | undefined;
  as: (value: T) => ComponentChildren;
  why?: string;
}) {
  return of === null || of === undefined ? <Unknown why={why} /> : <>{as(of)}</>;
}

export function Failure({ says }: { says: string }) {
  return (
    <p class="notice failure" role="alert">
      <strong>Not shown.</strong> <Inline text={says} />
    </p>
  );
}

export function Loading() {
  return (
    <p class="notice loading" role="status">
      Loading…
    </p>
  );
}
