import { useState } from "preact/hooks";
import type { Answer } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { json } from "../format";
import { Failure, Loading } from "../text/unknown";
import { Block } from "../text/visible";

interface RawAnswer extends Answer {
  trajectory: unknown;
}

export function RawTab({ id }: { id: string }) {
  const { answer, error } = useAnswer<RawAnswer>(`/api/rollouts/${id}/raw`);
  const [copied, setCopied] = useState<string | null>(null);
  if (!answer) return error ? <Failure says={error} /> : <Loading />;
  const text = json(answer.trajectory);
  const copy = () => {
    navigator.clipboard.writeText(text).then(
      () => setCopied("Copied."),
      () => setCopied("The browser did not allow it: select the text instead."),
    );
  };
  return (
    <section aria-label="The trajectory as JSON">
      <p>
        <button onClick={copy}>Copy</button> <span role="status">{copied}</span>
      </p>
      <Block text={text} mono />
    </section>
  );
}
