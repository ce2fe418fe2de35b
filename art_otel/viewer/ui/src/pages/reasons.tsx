import type { ComponentChildren } from "preact";
import type { Reason } from "../api/types";
import { Inline } from "../text/visible";

interface Props<T extends Reason> {
  rows: T[];
  counted: string;
  href: (row: T) => string | null;
  number: (row: T) => ComponentChildren;
}

/** Reasons why something is missing or not trained, how often, and what to do about each.
 *
 * The roles are for narrow pages, where a row is no row of a table to the browser. */
export function Reasons<T extends Reason>({ rows, counted, href, number }: Props<T>) {
  return (
    <table class="reasons" role="table">
      <thead>
        <tr role="row">
          <th scope="col">Reason</th>
          <th scope="col" class="num">
            {counted}
          </th>
          <th scope="col">What helps</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => {
          const address = href(row);
          return (
            <tr role="row">
              <th scope="row">
                {address === null ? (
                  <Inline text={row.reason} />
                ) : (
                  <a href={address}>
                    <Inline text={row.reason} />
                  </a>
                )}
                <p class="quiet">
                  <Inline text={row.means} />
                </p>
              </th>
              <td class="num">{number(row)}</td>
              <td>
                <Inline text={row.helps} />
              </td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
