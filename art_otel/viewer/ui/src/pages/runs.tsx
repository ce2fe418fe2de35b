import type { Runs, Series } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { go, withQuery, type Query, type Route } from "../route";
import { Failure, Loading } from "../text/unknown";
import { Inline, visible } from "../text/visible";
import { Chart } from "./chart";
import { SeriesTable } from "./series_table";
import { smooth } from "./smoothing";
import { TaskSection } from "./task_over_steps";

/** What most look at first: the reward. */
function usualMetric(metrics: string[]): string | null {
  const patterns = [/^reward$/, /(^|\/)(mean_)?reward(\/mean)?$/i, /^(?!data\/).*reward/i];
  return (
    patterns.map((pattern) => metrics.find((name) => pattern.test(name))).find((name) => name !== undefined) ??
    metrics[0] ??
    null
  );
}

export function RunsPage({ route }: { route: Route }) {
  const { answer: runs, error } = useAnswer<Runs>("/api/runs");
  const metric = route.query.get("metric") ?? (runs ? usualMetric(runs.metrics) : null);
  const named = route.query.get("run")?.split(",").map(decodeURIComponent);
  const chosen = runs ? runs.runs.filter((run) => named === undefined || named.includes(run.id)).slice(0, 8) : [];
  const smoothing = Number(route.query.get("smooth") ?? 0) || 0;
  const asked = new URLSearchParams([["metric", metric ?? ""], ...chosen.map((run) => ["run", run.id])]);
  const series = useAnswer<Series>(
    metric === null || chosen.length === 0 ? null : `/api/runs/series?${asked.toString()}`,
  );
  if (!runs) return error ? <Failure says={error} /> : <Loading />;
  const change = (changes: Query) => go(withQuery(route, changes), { replace: true });
  const lines = (series.answer?.series ?? []).map((line) => ({
    ...line,
    name: runs.runs.find((run) => run.id === line.run)?.name ?? line.run,
    smoothed: smooth(line.values, smoothing),
  }));
  return (
    <>
      <h1>Runs</h1>
      {runs.runs.length === 0 || runs.metrics.length === 0 ? (
        <p class="notice">No run log lies here: <code>art-otel view</code> on a run’s folder shows its metrics over steps.</p>
      ) : (
        <>
          <div class="token-bar">
            <label class="choice">
              <span>Metric</span>
              <select value={metric ?? ""} onChange={(event) => change({ metric: event.currentTarget.value })}>
                {runs.metrics.map((name) => (
                  <option value={name}>{visible(name)}</option>
                ))}
              </select>
            </label>
            <label class="choice">
              <span>Smoothing</span>
              <input
                type="range"
                min="0"
                max="0.95"
                step="0.05"
                value={smoothing}
                onInput={(event) => change({ smooth: Number(event.currentTarget.value) || null })}
              />
              <span class="num">{smoothing}</span>
            </label>
          </div>
          <fieldset class="run-choice">
            <legend>Runs, at most 8</legend>
            {runs.runs.map((run) => (
              <label class="check">
                <input
                  type="checkbox"
                  checked={chosen.includes(run)}
                  onChange={(event) => {
                    const ids = event.currentTarget.checked ? [...chosen, run] : chosen.filter((each) => each !== run);
                    change({ run: ids.map((each) => encodeURIComponent(each.id)).join(",") });
                  }}
                />
                <Inline text={run.name} />
              </label>
            ))}
          </fieldset>
          {series.error && <Failure says={series.error} />}
          {lines.length > 0 && metric !== null && (
            <>
              <Chart lines={lines} metric={metric} />
              <SeriesTable lines={lines} metric={metric} />
            </>
          )}
        </>
      )}
      <TaskSection route={route} />
    </>
  );
}
