import type { Run } from "../api/types";
import { count } from "../format";
import { Inline } from "../text/visible";

/** Spans read = used + duplicate + ignored + quarantined; calls = completed + failed. */
export function Account({ account }: { account: NonNullable<Run["account"]> }) {
  const { calls } = account;
  const left = [...Object.entries(account.ignored), ...Object.entries(account.quarantined)];
  const [ignored, quarantined] = [total(account.ignored), total(account.quarantined)];
  return (
    <details>
      <summary>
        {count(account.read)} spans read,{" "}
        {quarantined > 0 ? `${count(quarantined)} quarantined` : "all accounted for"}
      </summary>
      <p class="num">
        {count(account.read)} spans read = {count(account.used)} used + {count(account.duplicate)} duplicate +{" "}
        {count(ignored)} ignored + {count(quarantined)} quarantined. {count(calls.total)} calls = {count(calls.completed)}{" "}
        completed + {count(calls.failed)} failed.
      </p>
      {left.length > 0 && (
        <ul>
          {left.map(([reason, number]) => (
            <li>
              <Inline text={reason} />: {count(number)}
            </li>
          ))}
        </ul>
      )}
    </details>
  );
}

function total(counts: Record<string, number>): number {
  return Object.values(counts).reduce((sum, number) => sum + number, 0);
}
