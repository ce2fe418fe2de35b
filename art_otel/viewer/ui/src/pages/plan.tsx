import { isExported } from "../api/fetch_json";
import type { Info, Plan } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { count, counted, json, percent } from "../format";
import { go, withQuery, type Route } from "../route";
import { Columns } from "../text/columns";
import { Failure, Loading, Value } from "../text/unknown";
import { Block } from "../text/visible";
import { useRef } from "preact/hooks";
import { ChosenNote } from "./chosen";
import { PlanOption } from "./plan_option";
import { Reasons } from "./reasons";
import { ToChoose } from "./to_choose";

export function PlanPage({ route, info }: { route: Route; info: Info | null }) {
  const query = route.query.toString();
  const { answer, error, loading } = useAnswer<Plan>(`/api/plan${query && `?${query}`}`);
  // While the counts for new options are on their way the form stays.
  const last = useRef<Plan | null>(null);
  if (answer) last.current = answer;
  const plan = answer ?? last.current;
  if (!plan) return error ? <Failure says={error} /> : <Loading />;
  return (
    <>
      <h1>What would train</h1>
      <p class="quiet">
        The same code as <code>art_otel.batches(…)</code>, with these options.{" "}
        {isExported ? (
          <>
            This file holds the default ones; <code>art-otel view</code> on the dataset answers others.
          </>
        ) : (
          "Nothing is written."
        )}
      </p>
      {info?.chosen && <ChosenNote chosen={info.chosen} />}
      <div class="plan">
        <form class="options" onSubmit={(event) => event.preventDefault()} aria-label="Options of batches">
          <fieldset disabled={isExported}>
            {plan.options.map((option) => (
              <PlanOption
                option={option}
                value={route.query.get(option.name)}
                onChange={(value) => go(withQuery(route, { [option.name]: value }), { replace: true })}
              />
            ))}
          </fieldset>
          {query !== "" && (
            <button type="button" onClick={() => go("#/plan", { replace: true })}>
              Default options
            </button>
          )}
        </form>
        <div class="outcome" aria-busy={loading}>
          {error && <Failure says={error} />}
          {plan.problem !== null && (
            <ToChoose
              problem={plan.problem}
              models={plan.options.find(({ name }) => name === "models")?.choices ?? []}
              hrefOf={(models) => withQuery(route, { models })}
            />
          )}
          <Outcome plan={plan} />
        </div>
      </div>
    </>
  );
}

function Outcome({ plan }: { plan: Plan }) {
  const { trajectories, completions, tokens } = plan;
  return (
    <>
      <table class="totals">
        <Columns of={["Of", ["All", "num"], ["Trained", "num"], "Share"]} />
        <tbody>
          <Total name="trajectories" all={trajectories.read} trained={trajectories.trained} />
          <Total name="sampled completions" all={completions.sampled} trained={completions.trained} />
          <Total
            name="sampled tokens"
            says={tokens.uncounted > 0 ? `, and unknown ones of ${count(tokens.uncounted)} trajectories` : ""}
            all={tokens.sampled}
            trained={tokens.trained}
          />
        </tbody>
      </table>
      {plan.sums ? (
        plan.problem === null && <p class="good">✓ These sums equal the report of the batches.</p>
      ) : (
        <p class="notice failure">
          <strong>The sums differ from the report of the batches.</strong> This is a bug: please report it.
        </p>
      )}
      <h2>Left out, and why</h2>
      {plan.skipped.length === 0 ? (
        <p class="good">✓ Nothing is left out.</p>
      ) : (
        <Reasons
          rows={plan.skipped}
          counted="How many"
          href={({ filter }) => (filter === null ? null : `#/t?${filter.replace(/^\?/, "")}`)}
          number={(row) => (
            <>
              {count(row.count)} <span class="quiet">{counted(row.count, row.unit).split(" ")[1]}</span>
            </>
          )}
        />
      )}
      {plan.report !== null && (
        <details>
          <summary>The report as it is</summary>
          <Block text={json(plan.report)} mono />
        </details>
      )}
    </>
  );
}

interface TotalProps {
  name: string;
  says?: string;
  all: number | null;
  trained: number | null;
}

function Total({ name, says = "", all, trained }: TotalProps) {
  return (
    <tr>
      <th scope="row">
        {name}
        <span class="quiet">{says}</span>
      </th>
      <td class="num">
        <Value of={all} as={count} />
      </td>
      <td class="num">
        <b>
          <Value of={trained} as={count} />
        </b>
      </td>
      <td class="bar">
        {all !== null && trained !== null && (
          <>
            <meter
              min={0}
              max={Math.max(all, 1)}
              value={trained}
              aria-label={`${name} trained: ${percent(trained, all)}`}
            />
            <span class="quiet">{percent(trained, all)}</span>
          </>
        )}
      </td>
    </tr>
  );
}
