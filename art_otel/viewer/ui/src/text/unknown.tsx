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
export function Value<T>({ of, as, why }: { of: T | null | undefined; as: (value: T) => ComponentChildren; why?: string }) {
  return of === null || of === undefined ? <Unknown why={why} /> : <>{as(of)}</>;
}

/** What went wrong, with ways on where it takes the place of a page. */
export function Failure({ says, ways = false }: { says: string; ways?: boolean }) {
  return (
    <p class="notice failure" role="alert">
      <strong>Not shown.</strong> <Inline text={says} />
      {ways && (
        <>
          {" "}
          <a href="#/t">All trajectories</a> or <a href="#/">the first page</a>.
        </>
      )}
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
