"""Completions: which completions of a selected trajectory are learned from, whatever their rewards and tokens.

Invariant: one function decides (`CompletionChoice.skip_reason`), of facts that columns have (`CompletionFacts`).
Whose a completion is comes first: what another model, another agent or a marked call sampled is not the policy's, is
trained nowhere and counts in no baseline. How it was sampled comes second: such a completion is the policy's, and its
rollout is compared with the others.

    one rollout    policy: plan     judge: score 0.7     policy: answer, cut at max_tokens
    models=["policy"], length="mask"
                   trained          another model        cut at max_tokens: context only
"""

import re
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from art_otel.data.versions import is_version_of
from art_otel.errors import UsageError
from art_otel.trajectories import CONTEXT_EXCEEDED

Length: TypeAlias = Literal["keep", "mask", "drop"]
"""What becomes of completions that were cut at `max_tokens`: trained, only context, or their rollout left out."""

ContextExceeded: TypeAlias = Literal["keep", "mask", "drop"]
"""What becomes of rollouts that ended because their context was exceeded: trained, only context, or left out."""

ClosedStreams: TypeAlias = Literal["drop", "train"]
"""What becomes of the ids that came of a stream that the app closed before it ended: only context, or trained."""

Constrained: TypeAlias = Literal["keep", "drop"]
"""What becomes of completions whose request allowed only some tokens, or moved them: trained, or only context."""

Images: TypeAlias = Literal["drop", "placeholders"]
"""What becomes of completions sampled behind images, audio or files where these are not carried: only context, or
trained on the placeholders that token ids have for them."""

Names: TypeAlias = str | Iterable[str] | None
"""Names or globs, of which `!` excludes: `"policy"`, `["policy-*", "!*-judge"]`. `"*"` is all, None is no choice."""

MARKED: Final = "marked untrained"
ANOTHER_MODEL: Final = "another model"
ANOTHER_AGENT: Final = "another agent"
CUT: Final = "cut at max_tokens"
CONSTRAINED: Final = "constrained sampling"
IMAGES: Final = "images not carried"

STREAM_BROKE: Final = "stream broke"

NOT_THE_POLICYS: Final = (MARKED, ANOTHER_MODEL, ANOTHER_AGENT)
"""Reasons by which a completion is not the policy's, and counts in no baseline."""

SEVERAL: Final = "several models"
"""Why a rollout trains nothing where several models sampled it and nobody chose. What trains raises instead."""

HOW_SAMPLED: Final = (CONTEXT_EXCEEDED, CUT, CONSTRAINED, IMAGES)
"""Reasons by which a completion of the policy is only context."""


class CompletionFacts(NamedTuple):
    """What of a completion an option asks for. `model` is the request's, the response's where that is unknown.

    `end` says how sampling of its rollout ended.
    """

    model: str | None
    agent: str | None
    marked_untrained: str | None
    end: str | None
    finish_reason: str | None
    is_constrained: bool
    has_media: bool


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `art_otel.batches` by the same names; chat messages carry images."""

    models: tuple[str, ...] | None = None
    agents: tuple[str, ...] | None = None
    context_exceeded: ContextExceeded = "keep"
    length: Length = "keep"
    constrained: Constrained = "keep"
    images: Images = "placeholders"

    def skip_reason(self, facts: CompletionFacts) -> str | None:
        """Why the completion is not trained; None where it is. Nothing else decides that."""
        if facts.marked_untrained is not None:
            return MARKED
        if not is_among(self.models, facts.model):
            return ANOTHER_MODEL
        if not is_among(self.agents, facts.agent):
            return ANOTHER_AGENT
        is_exceeded, is_cut = facts.end == CONTEXT_EXCEEDED, facts.finish_reason == "length"
        # What leaves out the whole rollout comes first: else a mask would hide it from `refuses`.
        if is_exceeded and self.context_exceeded == "drop":
            return CONTEXT_EXCEEDED
        if is_cut and self.length == "drop":
            return CUT
        if is_exceeded and self.context_exceeded == "mask":
            return CONTEXT_EXCEEDED
        if is_cut and self.length == "mask":
            return CUT
        if self.images == "drop" and facts.has_media:
            return IMAGES
        return CONSTRAINED if self.constrained == "drop" and facts.is_constrained else None

    @property
    def is_open(self) -> bool:
        """Whether nobody chose by model or agent."""
        return self.models is None and self.agents is None


def is_among(patterns: tuple[str, ...] | None, name: str | None) -> bool:
    """Whether a name is chosen: by one of the patterns, if there are any that choose, and by none that excludes it.

    `("policy-*", "!*-judge")` chooses `policy-1`; `("!judge",)` chooses all but `judge`. An unknown name is chosen by
    `*`, and where all patterns exclude.
    """
    if patterns is None:
        return True
    chosen = [pattern for pattern in patterns if not pattern.startswith("!")]
    excluded = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    if name is None:
        return "*" in chosen or not chosen
    is_chosen = not chosen or any(fnmatchcase(name, pattern) for pattern in chosen)
    return is_chosen and not any(fnmatchcase(name, pattern) for pattern in excluded)


_ADAPTER: Final = re.compile(r"[-_:@/.](?:lora|adapter)(?:[-_:@/.].*)?$", re.IGNORECASE)
_VERSION: Final = re.compile(
    r"(?:@|(?:^|[-_:@/.])(?:v|version|(?:global[-_])?step|iter|epoch|ckpt|checkpoint)[-_.]?)\d+$", re.IGNORECASE
)


def policy_name(model: str) -> str:
    """The name that versions of one policy and adapters of one base share.

    `policy-v12`, `policy@12` and `policy-step-12` are `policy`, `qwen-lora-7` is `qwen`; the provider's prefix of
    `openai/gpt-4o` is left out, a path is kept. `gpt-4` and `gpt-5` are two models: only a word before a number makes
    it that of a version.
    """
    name = model.rpartition("/")[2] if model.count("/") == 1 else model
    return _VERSION.sub("", _ADAPTER.sub("", name))


class SeveralModels:
    """Finds rollouts in which several models sampled what would be trained, and nobody chose among them.

    Which of them is the policy cannot be told: a judge looks like a policy. So nothing is guessed. `trained` is the
    policy version that was asked for: models that are versions of it are one.
    """

    def __init__(self, trained: str | None = None) -> None:
        self._trained = trained
        self.completions = Counter[str]()
        self.rollouts: list[int] = []
        """The numbers of those that have several."""

    def add(self, number: int, models: Iterable[str | None]) -> None:
        """Add the models of the completions of rollout `number` that would be trained; None counts as none."""
        counts = Counter(model for model in models if model is not None)
        if len(set(map(self._policy, counts))) > 1:
            self.rollouts.append(number)
            self.completions += counts

    def _policy(self, model: str) -> str:
        is_trained = self._trained is not None and is_version_of(model, self._trained)
        return "" if is_trained else policy_name(model)

    def check(self) -> None:
        """Raise UsageError where a rollout has several models."""
        if (problem := self.problem()) is not None:
            raise UsageError(problem)

    def problem(self) -> str | None:
        """What to choose, and how; None where no rollout has several models."""
        if not self.rollouts:
            return None
        counts = ", ".join(f"{model!r}: {count:,}" for model, count in self.completions.most_common())
        first = self.completions.most_common(1)[0][0]
        found = "1 rollout has" if len(self.rollouts) == 1 else f"{len(self.rollouts):,} rollouts have"
        return (
            f"{found} completions of several models ({counts}), and nothing says which of them is trained."
            f' Choose, as with models=["{first}"], or models="*" for all of them'
            " (docs/how-to/train-only-the-policy.md)"
        )
