// The tree of turns as rows of a graph: which lane a turn stands in, and which lines pass its row.
import type { Turn } from "../api/types";

export interface Lane {
  turn: Turn;
  lane: number;
  from: number | null;
  through: number[];
  continued: boolean;
}

/** Depth first, so that a branch stands together; a turn's longest way on keeps its lane. */
export function lanesOf(turns: Turn[]): Lane[] {
  const byTurn = new Map(turns.map((turn) => [turn.turn, turn]));
  const children = new Map<number | null, Turn[]>();
  for (const turn of turns) {
    const link = turn.parent ?? turn.tokenParent;
    const parent = link !== null && byTurn.has(link) ? link : null;
    children.set(parent, [...(children.get(parent) ?? []), turn]);
  }
  const rows: { turn: Turn; lane: number; parent: number | null }[] = [];
  const open: { turn: Turn; lane: number; parent: number | null }[] = (children.get(null) ?? [])
    .reverse()
    .map((turn) => ({ turn, lane: 0, parent: null }));
  for (let next = open.pop(); next; next = open.pop()) {
    rows.push(next);
    const { turn, lane } = next;
    const own = children.get(turn.turn) ?? [];
    const main = own.find((child) => child.relation === "continue") ?? own[0];
    const others = own.filter((child) => child !== main);
    // The main way comes last: the lines of the others then never cross it.
    const ordered = [...others, ...(main ? [main] : [])];
    for (const child of ordered.reverse())
      open.push({ turn: child, lane: child === main ? lane : lane + 1, parent: turn.turn });
  }
  const place = new Map(rows.map((row, index) => [row.turn.turn, index]));
  const through = rows.map(() => new Set<number>());
  const continued = new Set<number>();
  rows.forEach(({ parent }, index) => {
    if (parent === null) return;
    const start = place.get(parent) ?? index;
    continued.add(start);
    for (let passed = start + 1; passed < index; passed++) through[passed]?.add(rows[start]?.lane ?? 0);
  });
  return rows.map(({ turn, lane, parent }, index) => ({
    turn,
    lane,
    from: parent === null ? null : (rows[place.get(parent) ?? -1]?.lane ?? null),
    through: [...(through[index] ?? [])],
    continued: continued.has(index),
  }));
}
