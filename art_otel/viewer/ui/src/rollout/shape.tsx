// A relation has a shape of its own beside its word.
const SHAPES: Record<string, string> = {
  root: "M8 2a6 6 0 1 0 .01 0z",
  continue: "M8 4a4 4 0 1 0 .01 0z",
  branch: "M8 2l6 11H2z",
  retry: "M3 3h10v10H3z",
  "n>1": "M8 1l7 7-7 7-7-7z",
  "sub-agent": "M5 2h6l4 6-4 6H5L1 8z",
  drift: "M9 1L3 9h4l-1 6 7-9H8z",
  rewritten: "M1 5h14v2H1zm0 4h14v2H1z",
};

export function Shape({ relation }: { relation: string }) {
  return (
    <svg
      class={`shape shape-${relation.replace(/\W/g, "")}`}
      viewBox="0 0 16 16"
      width="16"
      height="16"
      aria-hidden="true"
    >
      <path d={SHAPES[relation] ?? SHAPES.continue} />
    </svg>
  );
}
