"""Api: the answers of the page's addresses, as JSON values.

Invariant: every answer names the generation that all of it is of; a path of this machine is in none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from art_otel.errors import UsageError
from art_otel.version import __version__
from art_otel.viewer.keys import TrajectoryKey, decode_group_key, decode_trajectory_key
from art_otel.viewer.options import DEFAULTS, PlanOptions, described_options
from art_otel.viewer.pages.group import show_group
from art_otel.viewer.pages.listing import list_page
from art_otel.viewer.pages.overview import overview
from art_otel.viewer.pages.plan import show_plan, splits_of
from art_otel.viewer.pages.runs import list_runs, run_series
from art_otel.viewer.pages.tasks import list_tasks, show_task
from art_otel.viewer.problems import NotFoundError, ReplacedError
from art_otel.viewer.rollout.recorded_spans import RecordedSpans
from art_otel.viewer.rollout.rollout import raw_rollout, show_rollout
from art_otel.viewer.rollout.tokenizer import Tokenizer
from art_otel.viewer.rollout.tokens import show_tokens
from art_otel.viewer.snapshot import Snapshot, ViewedData

Query: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Api:
    """Answers of the data, with texts and spans where they are given. `live` says that the data may grow."""

    data: ViewedData
    tokenizer: Tokenizer | None = None
    spans: RecordedSpans | None = None
    live: bool = True

    def answer(self, path: str, query: Query, runs: tuple[str, ...] = ()) -> dict[str, Any]:
        """The answer of a path below `/api/`.

        Raises NotFoundError, UsageError, ReplacedError and StoreError.
        """
        snapshot = self.data.snapshot
        generation = query.get("generation")
        if generation and generation != snapshot.generation:
            raise ReplacedError("the dataset was replaced")
        return {"generation": snapshot.generation, **self._answer(snapshot, path, query, runs)}

    def _answer(self, snapshot: Snapshot, path: str, query: Query, runs: tuple[str, ...]) -> dict[str, Any]:
        match path.split("/"):
            case ["info"]:
                return self._info(snapshot)
            case ["overview"]:
                answer = overview(snapshot)
                problem = answer["problem"]
                return answer | {"problem": problem and self.data.without_paths(problem)}
            case ["trajectories"]:
                return list_page(snapshot, query)
            case ["rollouts", key, *rest]:
                return self._rollout(snapshot, decode_trajectory_key(key), rest, query)
            case ["groups", key]:
                return show_group(snapshot, decode_group_key(key), PlanOptions.read(query))
            case ["plan"]:
                return show_plan(snapshot, PlanOptions.read(query))
            case ["runs", *rest]:
                return self._runs(snapshot, rest, query, runs)
            case _:
                raise NotFoundError("nothing has this address")

    def _rollout(self, snapshot: Snapshot, key: TrajectoryKey, rest: list[str], query: Query) -> dict[str, Any]:
        match rest:
            case []:
                return show_rollout(snapshot, key, self.tokenizer, self.spans)
            case ["tokens"]:
                return show_tokens(snapshot, key, _history(query), PlanOptions.read(query), self.tokenizer)
            case ["raw"]:
                return raw_rollout(snapshot, key)
            case _:
                raise NotFoundError("nothing has this address")

    def _runs(self, snapshot: Snapshot, rest: list[str], query: Query, runs: tuple[str, ...]) -> dict[str, Any]:
        match rest:
            case []:
                return list_runs(snapshot.sources)
            case ["series"]:
                return run_series(snapshot.sources, query.get("metric", ""), runs)
            case ["tasks"]:
                return list_tasks(snapshot, query.get("q", ""))
            case ["task"]:
                return show_task(snapshot, query.get("name", ""))
            case _:
                raise NotFoundError("nothing has this address")

    def _info(self, snapshot: Snapshot) -> dict[str, Any]:
        names = [source.name for source in snapshot.sources]
        return {
            "version": __version__,
            "name": ", ".join(dict.fromkeys(names)),
            "sources": names,
            "hasTokenizer": self.tokenizer is not None,
            "hasRuns": any(source.run is not None for source in snapshot.sources),
            "hasSpans": self.spans is not None,
            "live": self.live,
            "options": described_options(DEFAULTS, splits_of(snapshot)),
            "readOnly": True,
        }


def _history(query: Query) -> int:
    text = query.get("history") or "0"
    if not text.isdecimal() or len(text) > 9:
        raise UsageError(f"history={text!r:.50}: is no number")
    return int(text)
