/** Exponential moving average, corrected for its start; what is unknown stays unknown. */
export function smooth(values: (number | null)[], weight: number): (number | null)[] {
  let [sum, seen] = [0, 0];
  return values.map((value) => {
    if (value === null || weight === 0) return value;
    sum = weight * sum + (1 - weight) * value;
    seen = weight * seen + (1 - weight);
    return sum / seen;
  });
}
