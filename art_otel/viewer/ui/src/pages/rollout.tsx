import type { Info, Rollout } from "../api/types";
import { useAnswer } from "../api/use_answer";
import { useKeys } from "../keyboard/keys";
import { ConversationTab } from "../rollout/conversation_tab";
import { RolloutHeader } from "../rollout/header";
import { RawTab } from "../rollout/raw";
import { TimeTab } from "../rollout/time";
import { TokensTab } from "../rollout/tokens";
import { TreeTab } from "../rollout/tree";
import { go, hashOf, type Query, type Route } from "../route";
import { Failure, Loading } from "../text/unknown";

const TABS = ["conversation", "tokens", "tree", "time", "raw"] as const;

/** What every tab needs: the rollout, its part of the address, and how to write another. */
export interface TabProps {
  rollout: Rollout;
  info: Info | null;
  query: URLSearchParams;
  address: (tab: string, query: Query) => string;
}

export function RolloutPage({ route, info }: { route: Route; info: Info | null }) {
  const [, key = "", named] = route.parts;
  const tab = TABS.find((each) => each === named) ?? "conversation";
  const { answer: rollout, error } = useAnswer<Rollout>(`/api/rollouts/${key}`);
  const address = (to: string, query: Query) => hashOf(["r", key, to], query);
  const other = (id: string | null | undefined) => {
    if (id) go(hashOf(["r", id, tab]));
  };
  useKeys({
    j: () => other(rollout?.next),
    k: () => other(rollout?.previous),
    "[": () => other(rollout?.groupPrevious),
    "]": () => other(rollout?.groupNext),
    ...Object.fromEntries(TABS.map((each, index) => [String(index + 1), () => go(address(each, {}))])),
  });
  if (!rollout) return error ? <Failure says={error} ways /> : <Loading />;
  return (
    <>
      {error && <Failure says={`${error} What is shown is from before the dataset changed.`} />}
      <RolloutHeader rollout={rollout} info={info} tab={tab} />
      <nav class="tabs" aria-label="Views of this rollout">
        {TABS.map((each) => (
          <a href={address(each, {})} aria-current={each === tab ? "page" : undefined}>
            {each[0]?.toUpperCase() + each.slice(1)}
          </a>
        ))}
      </nav>
      <Tab tab={tab} rollout={rollout} info={info} query={route.query} address={address} />
    </>
  );
}

function Tab({ tab, ...props }: TabProps & { tab: (typeof TABS)[number] }) {
  switch (tab) {
    case "conversation":
      return <ConversationTab {...props} />;
    case "tokens":
      return <TokensTab {...props} />;
    case "tree":
      return <TreeTab {...props} />;
    case "time":
      return <TimeTab {...props} />;
    case "raw":
      return <RawTab id={props.rollout.row.key} />;
  }
}
