import { isAnswered, isExported } from "../api/fetch_json";
import type { Info, Run } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { count, counted } from "../format";
import { RunList } from "../list/list";
import { go, hashOf, withQuery, type Query, type Route } from "../route";
import { Answers } from "../run/answers";
import { useWidth } from "../run/axis";
import { Bar } from "../run/bar";
import { ChosenNote } from "../run/chosen";
import { apiPath, chosenBy, noRollout } from "../run/filters";
import { GroupSection } from "../run/group";
import { Histogram } from "../run/histogram";
import { Metrics } from "../run/metrics";
import { ReadFirst } from "../run/read_first";
import { Steps } from "../run/steps";
import { Tasks } from "../run/tasks";
import { ToChoose, Trains } from "../run/trains";
import { Failure, Loading } from "../text/unknown";
import { Inline } from "../text/visible";

const FEW_TASKS = 12;
const NARROW = 860; // pixels

/** The first page: one bar of filters, four answers, and below them charts, a group, or the list. */
export function RunPage({ route, info }: { route: Route; info: Info | null }) {
  const { query } = route;
  const chosen = chosenBy(query);
  const { group } = chosen;
  // A file has the numbers of all its rollouts alone: with a filter it shows the list.
  const isPart = isExported && Object.keys(chosen).length > 0;
  const isGroup = group !== undefined && Object.keys(chosen).every((name) => name === "group" || name === "plan");
  const isList = route.parts[0] === "t" || (isPart && !(isGroup && isAnswered(`/api/groups/${group}`)));
  const { answer, error } = useAnswer<Run>(apiPath("run", chosen), (run) => run.judged || run.problem !== null, true);
  const change = (changes: Query) => go(withQuery(route, { at: null, ...changes }), { replace: true });
  const add = (changes: Query) => go(withQuery(route, { at: null, ...changes }));
  return (
    <>
      <h1 class="hidden">
        <Inline text={info?.name ?? "Run"} />
      </h1>
      <Bar run={answer} query={query} isList={isList} onChange={(changes) => ("q" in changes || "focus" in changes ? change(changes) : add(changes))} />
      {error && <Failure says={error} />}
      {!answer && !error && <Loading />}
      {answer && (
        <>
          {info?.chosen && <ChosenNote chosen={info.chosen} />}
          {isPart ? (
            <p class="quiet">The numbers of a file are of all its rollouts. This is a part of its list.</p>
          ) : (
            <>
              <ToChoose run={answer} chosen={chosen} />
              <Answers run={answer} chosen={chosen} />
            </>
          )}
        </>
      )}
      {isList ? (
        <RunList route={route} info={info} />
      ) : answer && group !== undefined ? (
        <GroupSection id={group} plan={chosen.plan ?? ""} />
      ) : (
        answer && <Charts run={answer} route={route} info={info} add={add} change={change} />
      )}
    </>
  );
}

interface ChartsProps {
  run: Run;
  route: Route;
  info: Info | null;
  add: (changes: Query) => void;
  change: (changes: Query) => void;
}

function Charts({ run, route, info, add, change }: ChartsProps) {
  const chosen = chosenBy(route.query);
  const { axis } = run;
  const { element, width } = useWidth<HTMLDivElement>();
  const isNarrow = width < NARROW;
  // Beside a few tasks there is no room for what to read; in a narrow window it stands above them.
  const isShort = !isNarrow && run.tasks.shown.length <= FEW_TASKS;
  const readFirst = width > 0 && run.matching > 0 && <ReadFirst chosen={chosen} />;
  return (
    <>
      {run.matching === 0 && <p class="notice">{noRollout(run.total === 0)}</p>}
      <div ref={element} class={isNarrow ? "charts" : "charts wide"}>
        <div>
          {axis.labels.length > 1 ? (
            <Steps
              run={run}
              onColumns={(first, last) => {
                const [from = "", to = ""] = [axis.labels[first], axis.labels[last]];
                const several = `${from.split("-")[0] ?? ""}-${to.split("-").pop() ?? ""}`;
                add({ [axis.kind]: axis.kind === "step" && first !== last ? several : from });
              }}
            />
          ) : (
            <Histogram rewards={run.rewards} chosen={chosen} />
          )}
          {isNarrow && readFirst}
          <Tasks run={run} chosen={chosen} />
          {info?.hasRuns && !isExported && <Metrics />}
        </div>
        <div>
          <Trains
            run={run}
            chosen={chosen}
            isOpen={route.query.get("options") === "open"}
            onPlan={(plan) =>
              change(plan === "open" || plan === "closed" ? { options: plan === "open" ? plan : null } : { plan })
            }
          />
          {!isNarrow && !isShort && readFirst}
        </div>
        {isShort && readFirst}
      </div>
      <footer class="foot">
        {run.repeated > 0 && (
          <p>
            {run.repeated === 1 ? "1 recording is" : `${count(run.repeated)} recordings are`} in several of these sources;
            each counts once, as of the first that has it.
          </p>
        )}
        {run.sharedGroups > 0 && (
          <p>
            {counted(run.sharedGroups, "group id")} {run.sharedGroups === 1 ? "is" : "are"} in several sources; each source
            has a group of its own, with the number of the source behind the id.
          </p>
        )}
        {run.account && (
          <p>
            {counted(run.account.read, "span")} read,{" "}
            {run.account.quarantined > 0
              ? `${count(run.account.quarantined)} quarantined: art-otel show says why`
              : "all accounted for"}
          </p>
        )}
        <a href={hashOf(["verify"])}>Verification</a> of recorded logprobs beside the model’s own
      </footer>
    </>
  );
}
