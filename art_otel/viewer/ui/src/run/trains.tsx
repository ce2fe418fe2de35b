import { useRef } from "preact/hooks";
import { isExported } from "../api/fetch_json";
import type { Choice, Plan, Run, TrainsPart } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { count, counted, json, percent } from "../format";
import { hashOf } from "../route";
import { Failure } from "../text/unknown";
import { Block, Inline, visible } from "../text/visible";
import { runHash } from "./filters";
import { PlanOption } from "./plan_option";

interface Props {
  run: Run;
  chosen: Choice;
  isOpen: boolean;
  onPlan: (plan: string) => void;
}

/** The sampled tokens as one bar: what teaches, what has advantage 0, and why the others are not trained. */
export function Trains({ run, chosen, isOpen, onPlan }: Props) {
  const { trains } = run;
  const gradient = trains && { tokens: trains.gradient, rollouts: trains.gradientRollouts, count: trains.gradientRollouts };
  const parts = gradient
    ? [{ reason: "trained with a gradient", query: { trains: "gradient" }, means: "", helps: "", ...gradient }, ...trains.parts]
    : [];
  const flats = parts.filter(({ query }) => "trains" in query).length - 1;
  const colorOf = (at: number) => `part${at <= flats ? Math.min(at, 1) : Math.min(at - flats + 1, 7)}`;
  return (
    <section aria-labelledby="trains" class="trains">
      <h2 id="trains" tabIndex={-1}>
        What trains{" "}
        <span class="quiet">
          {trains ? `of ${counted(trains.sampled, "sampled token")}` : run.problem ? "" : "is being judged…"}
          {trains && trains.uncounted > 0 && `, and unknown ones of ${counted(trains.uncounted, "rollout")}`}
          {chosen.plan === undefined ? "" : ", with your options"}
        </span>
      </h2>
      {!trains && run.problem && <Failure says={run.problem} />}
      {trains && (
        <>
          <div class="parts" aria-hidden="true" hidden={trains.sampled === 0}>
            {parts.map(({ tokens }, at) => tokens > 0 && <i class={colorOf(at)} style={{ flexGrow: tokens }} />)}
          </div>
          <p class="part-head quiet">tokens · of all · rollouts</p>
          {parts.map((part, at) => (
            <Part {...part} color={colorOf(at)} of={trains.sampled} chosen={chosen} />
          ))}
        </>
      )}
      <Options chosen={chosen} isOpen={isOpen} onPlan={onPlan} />
    </section>
  );
}

interface PartProps extends TrainsPart {
  color: string;
  of: number;
  chosen: Choice;
}

function Part({ color, reason, tokens, of, count: all, rollouts, query, chosen, means, helps }: PartProps) {
  const number = (
    <span class="num">
      {count(tokens)}{" "}
      <span class="quiet">
        · {percent(tokens, of)} · {count(rollouts)}
      </span>
    </span>
  );
  return (
    <details class="part">
      <summary>
        <i class={color} />
        <Inline text={reason} />
        {number}
      </summary>
      {means && (
        <p>
          <Inline text={`${means}.`} />
        </p>
      )}
      {helps && (
        <p>
          <b>What helps:</b> <Inline text={helps} />
        </p>
      )}
      <p>
        <a href={runHash({ ...chosen, ...query }, true)}>{counted(all, "rollout")}</a>
        {all !== rollouts && ` with such tokens, ${count(rollouts)} of them counted here`}
      </p>
    </details>
  );
}

/** Every option of batches: the bar, the area of the chart and the verdicts of the list are under what is chosen. */
function Options({ chosen, isOpen, onPlan }: Omit<Props, "run">) {
  const { answer, error } = useAnswer<Plan>(isOpen || chosen.plan !== undefined ? `/api/plan${chosen.plan ? `?${chosen.plan}` : ""}` : null);
  const last = useRef<Plan | null>(null);
  if (answer) last.current = answer;
  const plan = answer ?? last.current;
  const query = new URLSearchParams(chosen.plan);
  if (isExported) return <p class="quiet">With the default options; `art-otel view` on the dataset answers others.</p>;
  return (
    <details
      class="options"
      open={isOpen}
      onToggle={(event) => {
        if (event.currentTarget.open !== isOpen) onPlan(event.currentTarget.open ? "open" : "closed");
      }}
    >
      <summary>Other options{chosen.plan !== undefined && ` (${[...query.keys()].length} set)`}</summary>
      {error && <Failure says={error} />}
      {isOpen && plan && (
        <form onSubmit={(event) => event.preventDefault()} aria-label="Options of batches">
          <p class="quiet">
            Those of <code>art_otel.batches(…)</code>. Nothing is written.
            {chosen.plan !== undefined && (
              <>
                {" "}
                <button type="button" class="plain" onClick={() => onPlan("")}>
                  Default options
                </button>
              </>
            )}
          </p>
          {plan.options.map((option) => (
            <PlanOption
              option={option}
              value={query.get(option.name)}
              onChange={(value) => {
                if (value === null) query.delete(option.name);
                else query.set(option.name, value);
                onPlan(query.toString());
              }}
            />
          ))}
          {plan.report !== null && (
            <details>
              <summary>The report as it is</summary>
              <Block text={json(plan.report)} mono />
            </details>
          )}
        </form>
      )}
    </details>
  );
}

/** Says at the top that several models or agents are trained, or cannot be, because nobody chose among them. */
export function ToChoose({ run, chosen }: { run: Run; chosen: Choice }) {
  const { unchosen = [], parts = [] } = run.trains ?? {};
  const mixed = parts.find(({ reason }) => reason === "several models");
  if (run.judged && run.problem !== null)
    return (
      <p class="notice failure" role="alert" title={visible(run.problem)}>
        <strong>A model has to be chosen first.</strong>{" "}
        {mixed && `${counted(mixed.count, "rollout")} with answers of several models, of which nothing trains until one is chosen. `}
        {!isExported && <Choose kind="models" names={[...(run.choices.model ?? []), "*"]} chosen={chosen} />}
      </p>
    );
  const [first] = unchosen;
  if (!first) return null;
  return (
    <p class="notice">
      {counted(unchosen.length, first.kind.slice(0, -1))} are trained, and nobody chose:{" "}
      {unchosen.map(({ name, tokens }, at) => (
        <>
          {at > 0 && ", "}
          <b>
            <Inline text={name ?? "without a name"} />
          </b>{" "}
          {counted(tokens, "token")}
        </>
      ))}
      . {!isExported && <Choose kind={first.kind} names={[...unchosen.flatMap(({ name }) => name ?? []), "*"]} chosen={chosen} />}
    </p>
  );
}

function Choose({ kind, names, chosen }: { kind: string; names: string[]; chosen: Choice }) {
  const { plan, ...filters } = chosen;
  return (
    <>
      Train{" "}
      {names.slice(-7).map((name, at) => {
        const query = new URLSearchParams(plan);
        query.set(kind, name);
        return (
          <>
            {at > 0 && " or "}
            <a href={hashOf([""], { ...filters, plan: query.toString() })}>
              {name === "*" ? `all ${kind}` : <Inline text={name} />}
            </a>
          </>
        );
      })}
      .
    </>
  );
}
