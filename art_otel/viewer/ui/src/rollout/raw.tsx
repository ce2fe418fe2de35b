import { useEffect, useState } from "preact/hooks";
import { request } from "../api/generation";
import type { Answer } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { json } from "../format";
import { Failure, Loading } from "../text/unknown";
import { Block } from "../text/visible";
import type { Call } from "./types";

interface RawAnswer extends Answer {
  trajectory: { calls: unknown; turns: unknown };
}

/** The trajectory as JSON: its facts at once, each call when it is opened. */
export function Raw({ path, calls }: { path: string; calls: Call[] }) {
  const { answer, error } = useAnswer<RawAnswer>(`${path}?part=facts`);
  const [copied, setCopied] = useState<string | null>(null);
  if (!answer) return error ? <Failure says={error} /> : <Loading />;
  const { calls: _calls, turns: _turns, ...facts } = answer.trajectory;
  const copy = () =>
    request<RawAnswer>(path)
      .then((all) => navigator.clipboard.writeText(json(all.trajectory)))
      .then(
        () => setCopied("Copied."),
        () => setCopied("The browser did not allow it: select the text instead."),
      );
  return (
    <section aria-label="The trajectory as JSON">
      <p>
        <button onClick={() => void copy()}>Copy all</button> <span role="status">{copied}</span>
      </p>
      <Block text={json(facts)} mono />
      {calls.map((call, index) => (
        <RawCall
          path={`${path}?part=${index}`}
          name={`call ${index} · ${call.model ?? "unknown model"}`}
        />
      ))}
    </section>
  );
}

function RawCall({ path, name }: { path: string; name: string }) {
  const [open, setOpen] = useState(false);
  const { answer, error } = useAnswer<RawAnswer>(open ? path : null);
  const [text, setText] = useState<string | null>(null);
  useEffect(() => {
    const value = answer?.trajectory;
    // A list of numbers on one line: a prompt may have 100,000 ids.
    if (open && value)
      setText(
        json(value).replace(/\[[\s\d.,eE+-]*\]|\[(?:\s|null|[\d.,eE+-])*\]/g, (list) => list.replace(/\s+/g, " ")),
      );
  }, [open, answer]);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{name}</summary>
      {!open ? null : error !== null ? (
        <Failure says={error} />
      ) : text === null ? (
        <Loading />
      ) : (
        <Block text={text} mono />
      )}
    </details>
  );
}
