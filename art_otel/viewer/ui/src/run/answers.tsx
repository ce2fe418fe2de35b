import type { ComponentChildren } from "preact";
import type { Choice, Run } from "../api/types";
import { count, counted, decimal, percent } from "../format";
import { Inline } from "../text/visible";
import { runHash } from "./filters";

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
  const { kind, labels } = run.axis;
  const unit = kind === "version" ? "policy version" : kind;
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
        `mean reward${labels.length > 0 ? ` of one ${unit}` : "; no steps were recorded"}`
      ) : (
        <>
          mean reward, first and last {main.columns === 1 ? unit : `${main.columns} ${unit}s`} of {count(labels.length)}
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
  const isAlone = (run.learned[0]?.last ?? null) === null;
  const parts: [number, string][] = [
    [counts.never, "never solved"],
    [counts.forgotten, "forgotten"],
    [counts.failing, !isAlone ? "not learned" : counts.failing === 1 ? "mostly fails" : "mostly fail"],
  ];
  const failing = parts.filter(([number]) => number > 0);
  const names = shown.filter(({ kind }) => kind === "never" || kind === "forgotten" || kind === "failing");
  return (
    <Answer
      question="Which tasks fail?"
      tone={total === 0 ? "calm" : failing.length > 0 ? "bad" : "good"}
      href="#tasks"
      number={
        total === 0
          ? "unknown"
          : failing.map(([number, says]) => `${count(number)} ${says}`).join(", ") || "none"
      }
    >
      {total === 0 ? "no rollout has a task and a reward" : `of ${counted(total, "task")}`}
      {names.length > 0 && (
        <>
          : <Inline text={names.slice(0, 3).map(({ name }) => name).join(", ")} />
          {names.length > 3 && ", …"}
        </>
      )}
      {counts.solved > 0 && `; ${count(counts.solved)} solved ${isAlone ? "always" : "from the start"}`}
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
  return (
    <Answer
      question="What trains?"
      tone={trains.sampled === 0 ? "calm" : trains.gradient === 0 ? "bad" : 2 * trains.gradient < trains.sampled ? "warn" : "good"}
      href={runHash({ ...chosen, trains: "gradient" }, true)}
      number={trains.sampled === 0 ? "unknown" : `${percent(trains.gradient, trains.sampled)} of the tokens`}
    >
      {trains.sampled === 0 ? "no sampled tokens are known" : `${percent(trains.flat, trains.sampled)} have advantage 0`}
      {left > 0 && `; ${counted(left, "rollout")} left out`}
    </Answer>
  );
}

function Wrong({ run, chosen }: { run: Run; chosen: Choice }) {
  const { wrong, matching } = run;
  const [commonest] = wrong.errors;
  const parts: [number, string, Choice][] = [
    [wrong.error, "errors", { status: "error" }],
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
      tone={first === undefined ? "good" : wrong.error > 0 ? "bad" : "warn"}
      href={runHash({ ...chosen, ...first?.[2] }, true)}
      number={first === undefined ? "nothing" : [first, second].flatMap((one) => (one ? [share(one)] : [])).join(", ")}
    >
      {commonest && wrong.error > 0 && (
        <>
          {commonest.count < wrong.error
            ? `${count(commonest.count)} of ${count(wrong.error)} errors`
            : `${wrong.error > 1 ? "all " : ""}${counted(wrong.error, "error")}`}
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
