import type { Overview } from "../api/types";
import { count } from "../format";
import { Columns } from "../text/columns";
import { Inline } from "../text/visible";

/** Spans read = used + duplicate + ignored + quarantined; calls = completed + failed. */
export function Account({ report, sources }: { report: Overview["report"]; sources: number }) {
  if (!report && sources > 1) return <p class="quiet">Each of the {count(sources)} sources has its own: look at one alone.</p>;
  if (!report) return <p class="quiet">Unknown: no report of a conversion lies beside this dataset.</p>;
  const { spans, calls } = report;
  const left = [
    ...spans.ignored.map((row) => ({ ...row, kind: "ignored" })),
    ...spans.quarantined.map((row) => ({ ...row, kind: "quarantined" })),
  ];
  return (
    <>
      <p class="sum">
        <b>{count(spans.read)}</b> spans read = <b>{count(spans.used)}</b> used + <b>{count(spans.duplicate)}</b>{" "}
        duplicate + <b>{count(total(spans.ignored))}</b> ignored + <b>{count(total(spans.quarantined))}</b> quarantined
      </p>
      <p class="sum">
        <b>{count(calls.total)}</b> calls = <b>{count(calls.completed)}</b> completed + <b>{count(calls.failed)}</b>{" "}
        failed
      </p>
      {left.length > 0 && (
        <table class="reasons">
          <Columns of={["Spans not used", ["Spans", "num"], "Account"]} />
          <tbody>
            {left.map((row) => (
              <tr>
                <th scope="row">
                  <Inline text={row.reason} />
                </th>
                <td class="num">{count(row.count)}</td>
                <td>{row.kind}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

function total(rows: { count: number }[]): number {
  return rows.reduce((sum, row) => sum + row.count, 0);
}
