import type { ComponentChildren } from "preact";

/** What stands above a column; "num" for one of numbers, which are to the right. */
export type Column = ComponentChildren | [ComponentChildren, "num"];

/** The head of a table. Hidden, only screen readers say it. */
export function Columns({ of, hidden = false }: { of: Column[]; hidden?: boolean }) {
  return (
    <thead class={hidden ? "hidden" : undefined}>
      <tr>
        {of.map((column) => {
          const [name, kind] = Array.isArray(column) ? column : [column];
          return (
            <th scope="col" class={kind}>
              {name}
            </th>
          );
        })}
      </tr>
    </thead>
  );
}

/** What may be wider than the page, and then scrolls by itself, with the keyboard too. */
export function Scroll({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      {children}
    </div>
  );
}
