"""Agent loop: verl's agent loop plays rollouts of the app.

Invariant: prompt, response, mask and logprobs of an output are those of a token history: what the server saw and what
it sampled, never tokenized again. What is not trained is counted in `skipped`.

    class MyLoop(RolloutAgentLoop):
        def play(self, sampling_params, **row):
            return answer(row["raw_prompt"])    # a function decorated with @art_otel.rollout

Needs verl, which art-otel-verl itself does not depend on. Source: `AgentLoopBase`, `AgentLoopWorker` and
`AgentLoopWorkerTQ` of verl 0.9.1.
"""

# verl is not installed where the types are checked.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUntypedBaseClass=false

from abc import abstractmethod
from collections import Counter
from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar, Final

import numpy as np

import art_otel
from art_otel import Trajectory
from art_otel.exporting import TokenSequence, count_skipped, named

try:
    from verl.experimental.agent_loop import AgentLoopBase, AgentLoopOutput
except ImportError as missing:
    raise ImportError("art_otel_verl.agent_loop needs verl: install it as verl's documentation says") from missing

NO_PROMPT: Final = "histories: no prompt tokens before the first trained completion"
LONG_PROMPT: Final = "histories: the prompt is longer than rollout.prompt_length"
NO_LOGPROBS: Final = "histories: trained tokens without logprobs"
OTHER_HISTORY: Final = "histories: not the history that trains the most tokens"
CUT: Final = "responses cut at rollout.response_length"
EMPTY: Final = "rollouts of which nothing is trained, passed on as one untrained token"


class RolloutAgentLoop(AgentLoopBase):
    """Plays a rollout of the app for each row of verl's dataset.

    verl's V1 trainer gets every history of a rollout, and nothing if there is nothing to train. The older worker takes
    exactly one output of a rollout: the history that trains most tokens. If there is none, it gets a token that is not
    trained, with the reward `failed_reward`. If a rollout has no reward, verl asks its own reward function. `skipped`
    counts by reason what verl did not get. A reason is logged when it is first met.
    """

    failed_reward: ClassVar[float] = 0.0
    allow_incomplete: ClassVar[bool | tuple[str, ...]] = False
    skipped: ClassVar[Counter[str]] = Counter()

    @abstractmethod
    def play(self, sampling_params: dict[str, Any], **row: Any) -> Awaitable[object]:  # noqa: ANN401 # verl's
        """Call the app's rollout for a row of the dataset: an async function that @art_otel.rollout decorates."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:  # noqa: ANN401 # as above
        """Play a rollout, and return its outputs for the V1 trainer, or one output for the older worker."""
        trajectory = await art_otel.gather_trajectory(self.play(sampling_params, **row))
        with_logprobs = bool(sampling_params.get("logprobs"))
        outputs = self._outputs(trajectory, row.get("global_steps"), with_logprobs=with_logprobs)
        # Only V1 says which of a prompt's rollouts this is.
        if "session_id" in row:
            return outputs
        self._count({OTHER_HISTORY: max(len(outputs) - 1, 0), EMPTY: int(not outputs)})
        if not outputs:
            return self._empty(trajectory, with_logprobs=with_logprobs)
        return max(outputs, key=lambda output: sum(output.response_mask))

    def _outputs(self, trajectory: Trajectory, step: int | None, *, with_logprobs: bool) -> list[Any]:
        """An output for each history that trains something. `step` is the trainer's, None if it does not say it."""
        selected = art_otel.batches([trajectory], advantage=None, allow_incomplete=self.allow_incomplete)
        outputs: list[Any] = []
        for sequence in selected.sequences():
            problem = self._problem(sequence, with_logprobs=with_logprobs)
            if problem is None:
                outputs.append(self._output(sequence, trajectory, step, with_logprobs=with_logprobs))
            else:
                self._count({problem: 1})
        self._count(named("trajectories", selected.report.trajectories_skipped))
        self._count(named("completions", selected.report.completions_skipped))
        return outputs

    def _problem(self, sequence: TokenSequence, *, with_logprobs: bool) -> str | None:
        """Why verl does not get the history, or None. A prompt that verl shortens would not be what the server saw."""
        if sequence.completions[0].start == 0:
            return NO_PROMPT
        if sequence.completions[0].start > self.rollout_config.prompt_length:
            return LONG_PROMPT
        return NO_LOGPROBS if with_logprobs and sequence.without_logprobs else None

    def _output(self, sequence: TokenSequence, trajectory: Trajectory, step: int | None, *, with_logprobs: bool) -> Any:  # noqa: ANN401 # verl's
        start, end = sequence.completions[0].start, sequence.completions[-1].end
        longest = start + self.rollout_config.response_length
        self._count({CUT: int(end > longest)})
        response = slice(start, min(end, longest))
        return AgentLoopOutput(
            prompt_ids=sequence.input_ids[:start].tolist(),
            response_ids=sequence.input_ids[response].tolist(),
            response_mask=sequence.loss_mask[response].astype(np.int8).tolist(),
            response_logprobs=sequence.logprobs[response].tolist() if with_logprobs else None,
            reward_score=sequence.reward,
            num_turns=2 * len(sequence.turns),
            metrics=_seconds(trajectory),
            extra_fields=_versions(sequence, step) | _named(sequence.rollout_id, sequence.policy_version),
        )

    def _empty(self, trajectory: Trajectory, *, with_logprobs: bool) -> Any:  # noqa: ANN401 # as above
        filler = [self.tokenizer.eos_token_id]
        return AgentLoopOutput(
            prompt_ids=filler,
            response_ids=filler,
            response_mask=[0],
            response_logprobs=[0.0] if with_logprobs else None,
            reward_score=self.failed_reward,
            metrics={},
            extra_fields=_named(trajectory.rollout_id, None),
        )

    def _count(self, counts: Mapping[str, int]) -> None:
        warning = "art-otel: verl's agent loop skips %s; RolloutAgentLoop.skipped counts them"
        count_skipped(self.skipped, counts, warning)


def _seconds(trajectory: Trajectory) -> dict[str, float]:
    """How long the calls and the tools took, by the names of `AgentLoopMetrics`."""
    calls = sum(one.end_ns - one.start_ns for one in trajectory.calls if one.end_ns is not None)
    tools = sum(one.end_ns - one.start_ns for one in trajectory.tool_calls if one.end_ns is not None)
    return {"generate_sequences": calls / 1e9, "tool_calls": tools / 1e9}


def _named(rollout_id: str, policy_version: str | None) -> dict[str, Any]:
    """The further fields of an output. All outputs have the same ones, because verl makes arrays of them."""
    ours = {"rollout_id": rollout_id, "policy_version": policy_version}
    return ours | {"reward_extra_info": {}, "turn_scores": [], "tool_rewards": []}


def _versions(sequence: TokenSequence, step: int | None) -> dict[str, int]:
    """The steps of the oldest and of the newest weights that sampled a trained token.

    If a token has no version that is a number, both are the step before the trainer's `step`, because V1 needs them in
    every row.
    """
    versions = sequence.weight_versions[sequence.loss_mask]
    if (versions < 0).any():
        return {} if step is None else {"min_global_steps": step - 1, "max_global_steps": step - 1}
    return {"min_global_steps": int(versions.min()), "max_global_steps": int(versions.max())}
