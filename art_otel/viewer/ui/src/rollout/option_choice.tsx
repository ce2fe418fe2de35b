import { isExported } from "../api/fetch_json";
import type { Info, Option } from "../api/types";
import type { Query } from "../route";
import { visible } from "../text/visible";

interface Props {
  option: Option;
  value: string | null;
  onChange: (value: string | null) => void;
}

/** A choice among the values of one batch option; the default is left out of the address. */
export function OptionChoice({ option, value, onChange }: Props) {
  const standard = String(option.default ?? "");
  return (
    <label class={value !== null && value !== standard ? "choice set" : "choice"}>
      <span>{option.label}</span>
      <select
        value={value ?? String(option.value ?? standard)}
        onChange={(event) => onChange(event.currentTarget.value === standard ? null : event.currentTarget.value)}
      >
        {wordsOf(option, value).map((each) => (
          <option value={each}>{visible(each)}</option>
        ))}
      </select>
    </label>
  );
}

/** The options that decide what a token is worth, for pages that show it. */
export function RewardOptions({
  info,
  query,
  onChange,
}: {
  info: Info | null;
  query: URLSearchParams;
  onChange: (changes: Query) => void;
}) {
  const options = (info?.options ?? []).filter(({ name }) => name === "credit" || name === "advantage");
  if (options.length === 0 || isExported) return null;
  return (
    <div class="reward-options">
      {options.map((option) => (
        <OptionChoice
          option={option}
          value={query.get(option.name)}
          onChange={(value) => onChange({ [option.name]: value })}
        />
      ))}
    </div>
  );
}

/** The choices that need nothing filled in, and what is chosen. */
function wordsOf(option: Option, value: string | null): string[] {
  const words = option.choices.filter((each) => !each.includes("("));
  return value === null || words.includes(value) ? words : [...words, value];
}
