import type { ComponentChildren } from "preact";
import type { Choice, Run } from "../api/types";
import { count, counted, decimal, percent } from "../format";
import { Inline } from "../text/visible";
import { runHash } from "./filters";
import { FAILING } from "./tasks";
import { unitOf } from "./axis";

/** Four questions, each with one number, a sentence, and the rollouts behind it. */
export function Answers({ run, chosen }: { run: Run; chosen: Choice }) {
  return (
    <div class="answers">
      <Learned run={run} chosen={chosen} />
      <Tasks run={run} />
      <Trains run={run} chosen={chosen} />
      <Wrong run={run} chosen={chosen} />
    </div>
  );
}

interface AnswerProps {
  question: string;
  tone: "good" | "bad" | "warn" | "calm";
  href: string;
  number: ComponentChildren;
  children: ComponentChildren;
}

function Answer({ question, tone, href, number, children }: AnswerProps) {
  return (
    <section class={`answer ${tone}`}>
      <h2>{question}</h2>
      <a class="number" href={href}>
        {number}
      </a>
      <p>{children}</p>
    </section>
  );
}

function mean(value: number | null): string {
  return value === null ? "unknown" : Number.isInteger(value) ? decimal(value) : value.toFixed(2);
}

function Learned({ run, chosen }: { run: Run; chosen: Choice }) {
  const [main, ...others] = run.learned;
  const learned = (one: NonNullable<typeof main>) =>
    one.last === null ? mean(one.first) : `${mean(one.first)} → ${mean(one.last)}`;
  const [from, to] = [main?.first ?? null, main?.last ?? null];
  const { steps } = run.axis;
  const unit = unitOf(run.axis);
  return (
    <Answer
      question={to === null ? "How well does it do?" : "Did it learn?"}
      tone={from === null || to === null || to === from ? "calm" : to > from ? "good" : "bad"}
      href={runHash({ ...chosen, ...main?.queries[1] }, true)}
      number={main ? learned(main) : "unknown"}
    >
      {main === undefined || from === null ? (
        "no rollout has a reward"
      ) : to === null ? (
        `mean reward${steps > 0 ? ` of one ${unit}` : "; no steps were recorded"}`
      ) : (
        <>
          mean reward, first and last {main.over === 1 ? unit : counted(main.over, unit)} of {count(steps)}
        </>
      )}
      {others.slice(0, 3).map((one) => (
        <>
          {" · "}
          <b>{learned(one)}</b> {[one.split === "held out" && "val", one.source].filter(Boolean).join(" of ")}
        </>
      ))}
    </Answer>
  );
}

function Tasks({ run }: { run: Run }) {
  const { total, counts, shown } = run.tasks;
  const solved = counts["solved from the start"] ?? 0;
  const failing = FAILING.filter((kind) => counts[kind]);
  const names = shown.filter(({ kind }) => failing.includes(kind));
  return (
    <Answer
      question="Which tasks fail?"
      tone={total === 0 ? "calm" : failing.length > 0 ? "bad" : "good"}
      href="#tasks"
      number={
        total === 0
          ? "unknown"
          : failing.map((kind) => `${count(counts[kind] ?? 0)} ${kind}`).join(", ") || "none"
      }
    >
      {total === 0 ? "no rollout has a task and a reward" : `of ${counted(total, "task")}`}
      {names.length > 0 && (
        <>
          : <Inline text={names.slice(0, 3).map(({ name }) => name).join(", ")} />
          {names.length > 3 && ", …"}
        </>
      )}
      {solved > 0 && `; ${count(solved)} solved from the start`}
    </Answer>
  );
}

function Trains({ run, chosen }: { run: Run; chosen: Choice }) {
  const { trains } = run;
  if (!trains)
    return (
      <Answer question="What trains?" tone={run.problem ? "bad" : "calm"} href="#trains" number={run.problem ? "unknown" : "…"}>
        {run.problem ? <Inline text={run.problem} /> : "the rollouts are being judged"}
      </Answer>
    );
  const left = trains.rollouts - trains.trained;
  const broken = [
    trains.gradientCut > 0 && `${count(trains.gradientCut)} ${trains.gradientCut === 1 ? "was" : "were"} cut at the limit of tokens`,
    trains.gradientErrors > 0 && `${count(trains.gradientErrors)} ended in an error`,
  ].filter(Boolean);
  return (
    <Answer
      question="What trains?"
      tone={trains.sampled === 0 ? "calm" : trains.gradient === 0 ? "bad" : 2 * trains.gradient < trains.sampled ? "warn" : "good"}
      href={runHash({ ...chosen, trains: "gradient" }, true)}
      number={trains.sampled === 0 ? "unknown" : `${percent(trains.gradient, trains.sampled)} of the tokens`}
    >
      {[
        trains.sampled === 0 && "no sampled tokens are known",
        trains.flat > 0 && `${percent(trains.flat, trains.sampled)} have advantage 0`,
        broken.length > 0 && `of ${counted(trains.gradientRollouts, "rollout")} with a gradient, ${broken.join(", ")}`,
        left > 0 && `${counted(left, "rollout")} left out`,
      ].filter(Boolean).join("; ")}
    </Answer>
  );
}

function Wrong({ run, chosen }: { run: Run; chosen: Choice }) {
  const { wrong, matching } = run;
  const [commonest] = wrong.errors;
  const parts: [number, string, Choice][] = [
    [wrong.error, "ended in an error", { status: "error" }],
    [wrong.cut, "cut", { wrong: "cut" }],
    [wrong.incomplete, "incomplete", { wrong: "incomplete" }],
    [wrong.failed, "with a failed call", { wrong: "failed" }],
  ];
  const present = parts.filter(([number]) => number > 0);
  const [first, second, ...rest] = present;
  const share = ([number, name]: (typeof parts)[number]) => `${percent(number, matching)} ${name}`;
  return (
    <Answer
      question="What goes wrong?"
      tone={matching === 0 ? "calm" : first === undefined ? "good" : wrong.error > 0 ? "bad" : "warn"}
      href={runHash({ ...chosen, ...first?.[2] }, true)}
      number={matching === 0 ? "unknown" : first === undefined ? "nothing" : [first, second].flatMap((one) => (one ? [share(one)] : [])).join(", ")}
    >
      {commonest && wrong.error > 0 && (
        <>
          {commonest.count < wrong.error
            ? `${count(commonest.count)} of ${count(wrong.error)}`
            : `${wrong.error > 1 ? "all " : ""}${count(wrong.error)}`}
          :{" "}
          {commonest.text === null ? (
            "no message was recorded"
          ) : (
            <a href={runHash({ ...chosen, error: commonest.text }, true)}>
              <Inline text={commonest.text} />
            </a>
          )}
        </>
      )}
      {(commonest ? [second, ...rest] : present).flatMap((one) => (one ? [one] : [])).map(([number, name, query], at) => (
        <>
          {(at > 0 || (commonest && wrong.error > 0)) && " · "}
          <a href={runHash({ ...chosen, ...query }, true)}>
            {count(number)} {name}
          </a>
        </>
      ))}
    </Answer>
  );
}
