// Numbers and times as text. Nothing here makes a number of what is unknown.

const whole = new Intl.NumberFormat("en-US");

export function count(value: number): string {
  return whole.format(value);
}

/** A number of things: `1 task`, `2 tasks`. */
export function counted(number: number, thing: string): string {
  return `${count(number)} ${number === 1 ? thing : thing.endsWith("y") ? `${thing.slice(0, -1)}ies` : `${thing}s`}`;
}

/** An id with its middle left out: what tells ids apart is often at their end. */
export function shortId(id: string): string {
  return id.length > 20 ? `${id.slice(0, 6)}…${id.slice(-8)}` : id;
}

export function decimal(value: number, digits = 4): string {
  if (!Number.isFinite(value)) return String(value);
  return Number.isInteger(value) ? whole.format(value) : String(Number(value.toPrecision(digits)));
}

export function signed(value: number): string {
  return value > 0 ? `+${decimal(value)}` : decimal(value).replace("-", "−");
}

export function percent(part: number, all: number): string {
  if (all === 0) return "–";
  const share = (100 * part) / all;
  return share > 0 && share < 1 ? "<1%" : share < 100 && share > 99 ? ">99%" : `${Math.round(share)}%`;
}

export function duration(ms: number): string {
  if (ms < 1) return `${decimal(ms, 2)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${decimal(ms / 1000, 3)} s`;
  const seconds = Math.round(ms / 1000);
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  return h > 0 ? `${h} h ${m} min` : `${m} min ${s} s`;
}

/** A time of nanoseconds since the epoch, in UTC: people compare it with logs. */
export function time(ns: string): string {
  const date = new Date(Number(BigInt(ns) / 1_000_000n));
  return Number.isNaN(date.getTime()) ? ns : date.toISOString().replace("T", " ").slice(0, 19);
}

export function json(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
}
