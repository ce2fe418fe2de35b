import type { ComponentChildren } from "preact";

/** What may be wider than the page, and then scrolls by itself, with the keyboard too. */
export function Scroll({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      {children}
    </div>
  );
}
