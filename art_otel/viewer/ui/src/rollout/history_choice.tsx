import { Inline } from "../text/visible";

interface Props {
  histories: { index: number; says: string; agents?: string[] }[];
  chosen: number;
  href: (index: number) => string;
}

/** The histories of a rollout, counted from 1; one alone is no choice. */
export function HistoryChoice({ histories, chosen, href }: Props) {
  if (histories.length < 2) return null;
  return (
    <nav class="histories" aria-label="Histories">
      <span class="quiet">{histories.length} histories</span>
      {histories.map(({ index, says, agents = [] }) => (
        <a href={href(index)} aria-current={index === chosen ? "true" : undefined}>
          {agents.length > 0 ? <Inline text={agents.join(", ")} /> : index + 1}
          <span class="quiet"> · {says}</span>
        </a>
      ))}
    </nav>
  );
}
