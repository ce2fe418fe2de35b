import { isExported } from "../api/fetch_json";
import { Inline } from "../text/visible";

const MOST = 6;
const ALL = "*";

interface Props {
  problem: string;
  /** Of the data, the most frequent first. */
  models: string[];
  /** The plan in which a model is chosen. */
  hrefOf: (model: string) => string;
}

/** Says that nobody chose one of several models, and leads to plans in which one is chosen, where there are others. */
export function ToChoose({ problem, models, hrefOf }: Props) {
  return (
    <div class="notice failure" role="alert">
      <strong>A model has to be chosen first.</strong> <Inline text={problem} />.
      {!isExported && (
        <>
          {" "}
          Train{" "}
          {models
            .filter((model) => model !== ALL)
            .slice(0, MOST)
            .map((model) => (
              <>
                <a href={hrefOf(model)}>
                  <Inline text={model} />
                </a>{" "}
                or{" "}
              </>
            ))}
          <a href={hrefOf(ALL)}>all models</a>.
        </>
      )}
    </div>
  );
}
