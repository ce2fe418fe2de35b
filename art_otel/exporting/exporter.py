"""Exporter: what a trainer's distribution offers, a pure encoder and a tiny sink for each kind of file it reads.

Invariant: an encoder only turns items into records, in order; it neither reads nor writes files. What a format cannot
carry is declared, and what an encoder leaves out or changes is noted with its reason.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from art_otel.data.advantages import AdvantageName
from art_otel.data.decisions import TurnReward
from art_otel.data.selection import View
from art_otel.errors import UsageError
from art_otel.trajectories import Trajectory

Input: TypeAlias = Literal["trajectories", "sequences", "conversations", "preferences"]
"""What an encoder is given, one by one:

- `trajectories`: ScoredTrajectory, a whole trajectory and the rewards of its turns;
- `sequences`: `TokenSequence`, a token history with loss mask, logprobs and advantages;
- `conversations`: `MessageExample`, a history as chat messages with train flags;
- `preferences`: `PreferencePair`, two conversations of a group.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredTrajectory:
    """A trajectory, and of each of its turns the reward, the advantage, and why it is not trained. Shape: (turns,)."""

    trajectory: Trajectory
    turn_rewards: tuple[TurnReward, ...]


@dataclass(kw_only=True, slots=True)
class ExportStats:
    """Counts that an encoder keeps of its work.

    `skipped` counts records, or things smaller than a trajectory, by reason. `changed` counts changes that the format
    forced on records. `trajectories_skipped` counts trajectories that give no record at all. Only an encoder of whole
    trajectories counts here. For sequences and conversations, `export` does so: a trajectory is left out if its items
    gave no record, for the reason that `skipped` counted most often meanwhile.
    """

    skipped: Counter[str] = field(default_factory=Counter[str])
    trajectories_skipped: Counter[str] = field(default_factory=Counter[str])
    changed: Counter[str] = field(default_factory=Counter[str])


class Sink(Protocol):
    """Writes records to files. `suffix` is the suffix of its file, or empty for a folder of files."""

    @property
    def suffix(self) -> str:
        """The suffix of a file, such as `.jsonl`."""
        ...

    def write(self, records: Iterator[Any], out: Path) -> tuple[int, tuple[Path, ...]]:
        """Write all records. Return how many there were, and the files. A file gets its name only when it is whole."""
        ...


Encode: TypeAlias = Callable[[Iterator[Any], Any, ExportStats], Iterator[Any]]
"""(items, config, stats) -> records, as the sink of the same format takes them.

The records of an item come before the next item is taken, or `stats.skipped` counts why there is none.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoOptions:
    """The config of a format that has no options."""


def no_place(*names: str) -> dict[str, str]:
    """Fields of which `Format.not_carried` says no more than that the format has no place for them."""
    return dict.fromkeys(names, "no place in the format")


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """One kind of file that a trainer reads.

    - `needs` says what a trajectory must have.
    - `not_carried` maps fields of a trajectory that the format has no place for to a note for the user.
    - `config` is a frozen dataclass. Its fields, with their defaults, are options.
    - `advantage`: if the format has advantages, this names the trainer's own. They are computed unless the user wants
      others. With None there are none, and trajectories without a reward are exported too.
    - `imitates` says, for sequences, that the trainer imitates each of them, whatever its reward, as with
      conversations.
    - `view` says, for trajectories and sequences, what the trainer learns from: the ids of the server, text, or ids
      that it makes of the text of completions without ids.
    - `carries_images`: its records have the images, audio and files of prompts, or train no tokens. Otherwise,
      completions sampled behind such content are left out, unless the user wants them with placeholders.
    - `load` is the line of Python that loads its files, with `{files}` for the path, or the paths by their parts; empty
      where `datasets.load_dataset` does, or where trainers name their files themselves.
    - `takes_credit` is False if the file has the rewards as they were given.
    """

    name: str
    summary: str
    input: Input
    needs: str
    not_carried: Mapping[str, str]
    config: type = NoOptions
    encode: Encode
    sink: Callable[[Any], Sink]
    advantage: AdvantageName | None = None
    imitates: bool = False
    view: View = "tokens"
    takes_credit: bool = True
    carries_images: bool = False
    load: str = ""

    @property
    def is_imitated(self) -> bool:
        """Whether the trainer imitates every item. Then users should select rollouts by their rewards."""
        return self.imitates or self.input == "conversations"


@dataclass(frozen=True, kw_only=True, slots=True)
class Exporter:
    """What a package registers under `art_otel.exporters`. The first of `formats` is the default."""

    name: str
    summary: str
    formats: Sequence[Format]


@dataclass(frozen=True, kw_only=True, slots=True)
class NotCarried:
    """A field that the format has no place for: how many selected trajectories have it, and what to know.

    `trajectories` is None where only reading messages and tokens would tell.
    """

    trajectories: int | None
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportReport:
    """Counts of an export.

    `skipped` counts things smaller than a trajectory by reason (histories, sequences, completions, pairs, records).
    `changed` counts changes that the format forced on records. `not_carried` counts fields by name. `unsuccessful`
    counts used trajectories with a reward of 0 or less, if the trainer imitates every item. `other_rewards` has the
    names of the rewards that there are, if no selected trajectory has the reward that counts. `helps` says what to do
    about the reasons, but for those of the exporter itself. `parts` are the records of train, val and test, where the
    tasks were divided. `load` is the line of Python that loads the files, if one does.
    """

    exporter: str
    format: str
    records: int
    files: tuple[str, ...]
    trajectories: int
    trajectories_used: int
    trajectories_skipped: Mapping[str, int]
    unsuccessful: int
    skipped: Mapping[str, int]
    changed: Mapping[str, int]
    not_carried: Mapping[str, NotCarried]
    other_rewards: tuple[str, ...] = ()
    helps: Mapping[str, str] = field(default_factory=dict[str, str])
    parts: Mapping[str, int] = field(default_factory=dict[str, int])
    load: str | None = None


class NothingToExportError(UsageError):
    """An export would have no record, and wrote none. The message says why, and what helps; `report` has the counts."""

    def __init__(self, message: str, report: ExportReport) -> None:
        super().__init__(message)
        self.report = report
