// How a token is colored. The scale has trained tokens only; beside the color a bar under or over the token says the same.
import type { Tokens } from "../api/types";

export const COLORS = ["mask", "logprob", "advantage"] as const;
export type Color = (typeof COLORS)[number];

export const LEVELS = 5;

export function colorOf(name: string | null): Color {
  return COLORS.find((color) => color === name) ?? "mask";
}

/** The class of a trained token: `low0` to `low5` by logprob, `up…` or `down…` by the advantage's sign and size. */
export function levelOf(tokens: Tokens, index: number, color: Color): string {
  if (color === "mask") return "on";
  const value = (color === "logprob" ? tokens.logprobs : tokens.advantages)[index] ?? null;
  const scale = tokens.scale[color];
  if (value === null || !scale || scale.min === null || scale.max === null) return "unscaled";
  if (color === "logprob") return `low${level(scale.max - value, scale.max - scale.min)}`;
  const most = Math.max(Math.abs(scale.min), Math.abs(scale.max));
  return value === 0 ? "zero" : `${value > 0 ? "up" : "down"}${Math.max(1, level(Math.abs(value), most))}`;
}

function level(part: number, whole: number): number {
  return whole <= 0 ? 0 : Math.round((LEVELS * part) / whole);
}

/** Why a color cannot be shown, or null. */
export function unknownColor(tokens: Tokens, color: Color): string | null {
  if (color === "mask") return null;
  const scale = tokens.scale[color];
  if (scale && scale.min !== null) return null;
  if (!tokens.mask.some(Boolean)) return `No token of this history is trained here, so there is no ${color} to show.`;
  return color === "logprob"
    ? "Logprobs are unknown: the recorder did not keep them, or the server was not asked for them."
    : "Advantages are unknown: without a reward, or without a group where the advantage needs one, there is none.";
}
