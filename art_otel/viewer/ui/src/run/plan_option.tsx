import { useEffect, useState } from "preact/hooks";
import type { Option } from "../api/types";
import { Inline, visible } from "../text/visible";

interface Props {
  option: Option;
  value: string | null;
  onChange: (value: string | null) => void;
}

/** One option of batches; what equals its default is left out of the address. */
export function PlanOption({ option, value, onChange }: Props) {
  const standard = String(option.default ?? "");
  const shown = value ?? String(option.value ?? standard);
  const id = `option-${option.name}`;
  // What is being typed stays while the plan of an option before arrives.
  const [typed, setTyped] = useState(shown);
  useEffect(() => setTyped(shown), [shown]);
  const change = (next: string) => onChange(next === standard ? null : next);
  return (
    <div class={value === null ? "option" : "option set"}>
      <label for={id}>
        <code>{option.name}</code>
        {option.label.toLowerCase().replaceAll(" ", "_") !== option.name && (
          <span>
            {" "}
            <Inline text={option.label} />
          </span>
        )}
      </label>
      {option.kind === "choice" ? (
        <select id={id} value={shown} onChange={(event) => change(event.currentTarget.value)}>
          {option.choices.map((each) => (
            <option value={each}>{visible(each)}</option>
          ))}
        </select>
      ) : (
        <>
          <input
            id={id}
            type={option.kind === "number" ? "number" : "text"}
            min={0}
            value={typed}
            onInput={(event) => setTyped(event.currentTarget.value)}
            list={option.choices.length > 0 ? `${id}-examples` : undefined}
            placeholder={standard || (option.kind === "number" ? "none" : "any")}
            onChange={(event) => change(event.currentTarget.value)}
          />
          {option.choices.length > 0 && (
            <datalist id={`${id}-examples`}>
              {option.choices.map((each) => (
                <option value={each}>{visible(each)}</option>
              ))}
            </datalist>
          )}
        </>
      )}
      {option.help && (
        <p class="quiet">
          <Inline text={option.help} />
        </p>
      )}
    </div>
  );
}
