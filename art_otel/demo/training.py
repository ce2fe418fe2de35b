"""Training: a policy learns from nothing but spans which tool helps with which question.

Invariant: what a seed gives does not depend on the order in which threads get their turn. Every token that the server
sampled in a step is trained in that step, once.
"""

import io
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

import art_otel
from art_otel.data import Batch, BatchReport, Rewards
from art_otel.demo.agent_process import AgentProcess
from art_otel.demo.policy import Example, Policy, untrained
from art_otel.demo.policy_server import VERSION_HEADER, PolicyServer, post
from art_otel.demo.task import ATTEMPTS, TASKS, Attempt, attempts
from art_otel.errors import ArtOtelError, UsageError

DemoAdvantage: TypeAlias = Literal["grpo"] | Callable[[Rewards], ArrayLike]
LEARNING_RATE: Final = 3.0
_AT_ONCE: Final = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """What to train. Spans and the run log are left below `out`; `advantage` is as for `batches`."""

    out: Path
    steps: int = 30
    seed: int = 0
    advantage: DemoAdvantage = "grpo"

    @property
    def spool(self) -> Path:
        """Where the spans are."""
        return self.out / "spool"

    @property
    def log(self) -> art_otel.RunLog:
        """What is logged of each step."""
        return art_otel.RunLog("demo", "guide", base_path=self.out, report_metrics=[])


class DemoStep(NamedTuple):
    """What a step came to: the mean reward, how many tokens the server sampled, and how many were trained."""

    number: int
    reward: float
    sampled_tokens: int
    trained_tokens: int
    seconds: float


def train(training: Training) -> Iterator[DemoStep]:
    """Roll out, batch, update, publish; a step each time the caller asks for one.

    Raises UsageError at once where openai is missing and where `out` is no folder for a new run, with a step
    ArtOtelError where OTel is off and where not all that was sampled can be trained.
    """
    _check(training)
    return _steps(training)


def _steps(training: Training) -> Iterator[DemoStep]:
    policy, log = untrained(), training.log
    with ExitStack() as stack:
        stack.callback(art_otel.configure(enabled=True, dir=training.out, spool=True).shutdown)
        server = stack.enter_context(PolicyServer(policy))
        agent = stack.enter_context(AgentProcess(server.url, training.out))
        new = art_otel.NewTrajectories(training.spool)
        for step in range(training.steps):
            began = time.monotonic()
            roll_out(agent, training.seed, step)
            trajectories = new.take()
            if not trajectories:
                raise ArtOtelError("no rollout was recorded; `art-otel doctor` explains why")
            policy, report = learn(policy, trajectories, training.advantage)
            sampled, trained = publish(server.url, policy, version=step + 1), report.trained_tokens
            _check_trained(step, sampled, report)
            counts = {"sampled_tokens": sampled, "trained_tokens": trained}
            entry = log.log(trajectories, "train", step, counts)
            yield DemoStep(step, entry.metrics["train/reward"], sampled, trained, time.monotonic() - began)


def roll_out(agent: AgentProcess, seed: int, step: int) -> None:
    """Run the rollouts of a step, several at once: the agent answers, and its answers are scored."""

    def run(attempt: Attempt) -> None:
        task = attempt.task
        with art_otel.rollout(name=task.topic, group_id=task.name, split="train", training_step=step):
            art_otel.reward(task.score(agent.ask(task, attempt.seed)))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(run, attempts(seed, step)))


def learn(
    policy: Policy, trajectories: Sequence[art_otel.Trajectory], advantage: DemoAdvantage
) -> tuple[Policy, BatchReport]:
    """Take a step along the gradient; return the new policy and the report of the batches."""
    gradient, batches = np.zeros_like(policy.weights), art_otel.batches(trajectories, advantage=advantage)
    for batch in batches:
        gradient += policy.gradient(examples(batch))
    return Policy(weights=policy.weights + LEARNING_RATE * gradient / (TASKS * ATTEMPTS)), batches.report


def examples(batch: Batch) -> Iterator[Example]:
    """The sampled tokens of a batch, each with what stands before it in its sequence."""
    advantages = cast(NDArray[np.float32], batch.advantages)  # they were asked for
    for row, at in np.argwhere(batch.loss_mask):
        ids, start = batch.input_ids[row], at - batch.position_ids[row, at]
        yield Example(ids[start:at].tolist(), int(ids[at]), float(advantages[row, at]))


def publish(url: str, policy: Policy, version: int) -> int:
    """Give the server the weights of the next version; how many tokens it sampled with those before."""
    weights = io.BytesIO()
    np.save(weights, policy.weights)
    return json.loads(post(f"{url}/weights", weights.getvalue(), {VERSION_HEADER: str(version)}))["sampled_tokens"]


def _check(training: Training) -> None:
    if find_spec("openai") is None:
        raise UsageError("the demo's agent uses the openai client: pip install 'art-otel[client]'")
    out = training.out
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=out):
            pass
    except FileExistsError as error:
        raise UsageError(f"{out}: is a file; choose a new folder") from error
    except OSError as error:
        raise UsageError(f"{out}: cannot be written to ({error.strerror}); choose another folder") from error
    for earlier in (training.spool, training.log.folder.path):
        if earlier.exists():
            raise UsageError(f"{earlier}: holds an earlier run of the demo; choose a new folder")


def _check_trained(step: int, sampled: int, report: BatchReport) -> None:
    if report.trained_tokens == sampled:
        return
    skipped = report.trajectories_skipped + report.completions_skipped + report.sequences_skipped
    why = ", ".join(f"{reason}: {count}" for reason, count in sorted(skipped.items())) or "nothing"
    raise ArtOtelError(
        f"step {step}: {sampled} tokens were sampled, {report.trained_tokens} of them could be trained"
        f" (left out: {why}); `art-otel doctor` explains why"
    )
