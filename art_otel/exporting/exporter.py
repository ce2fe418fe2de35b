"""Exporter: the interface of a trainer's exporter. For each format it has a pure encoder and a small sink.

    items (e.g. TokenSequence) ─► encoder ─► records ─► sink ─► files

Invariant: an encoder only turns items into records, in order; it neither reads nor writes files. A format declares
what it cannot contain, and an encoder notes everything that it leaves out or changes, with the reason.
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
"""The items that an encoder gets, one by one:

- `trajectories`: ScoredTrajectory, a whole trajectory and the rewards of its turns;
- `sequences`: `TokenSequence`, a token history with loss mask, logprobs and advantages;
- `conversations`: `MessageExample`, a history as chat messages with train flags;
- `preferences`: `PreferencePair`, two conversations of a group.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredTrajectory:
    """A trajectory with the reward, the advantage, and the reason against training of each turn. Shape: (turns,)."""

    trajectory: Trajectory
    turn_rewards: tuple[TurnReward, ...]


@dataclass(kw_only=True, slots=True)
class ExportStats:
    """Counts that an encoder keeps of its work.

    `skipped` counts records, or parts of a trajectory, by reason. `changed` counts changes that the format requires.
    `trajectories_skipped` counts trajectories without any record; only an encoder of whole trajectories counts these.
    For sequences and conversations `export` counts them, by the reason that `skipped` counted most often meanwhile.
    """

    skipped: Counter[str] = field(default_factory=Counter[str])
    trajectories_skipped: Counter[str] = field(default_factory=Counter[str])
    changed: Counter[str] = field(default_factory=Counter[str])


class Sink(Protocol):
    """Writes records to files. `suffix` is the suffix of the single file, or empty for a folder of files."""

    @property
    def suffix(self) -> str:
        """The suffix of a file, such as `.jsonl`."""
        ...

    def write(self, records: Iterator[Any], out: Path) -> tuple[int, tuple[Path, ...]]:
        """Write all records; return their number and the files. A file gets its name only when it is complete."""
        ...


Encode: TypeAlias = Callable[[Iterator[Any], Any, ExportStats], Iterator[Any]]
"""(items, config, stats) -> records for the sink of the same format.

The records of an item, or a count in `stats.skipped`, must come before the next item is taken.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoOptions:
    """The config of a format that has no options."""


def no_place(*names: str) -> dict[str, str]:
    """Fields of `Format.not_carried` that need no further note."""
    return dict.fromkeys(names, "no place in the format")


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """One kind of file that a trainer reads.

    - `needs`: what a trajectory must have.
    - `not_carried`: fields of a trajectory that the format cannot contain, each with a note for the user.
    - `config`: a frozen dataclass. Its fields, with their defaults, are the format's options.
    - `advantage`: the name of the trainer's own advantage, which is computed unless the user wants another one. None:
      the format has no advantages, so trajectories without a reward are exported, too.
    - `imitates`: for sequences, the trainer imitates each of them whatever its reward, as it does conversations.
    - `view`: for trajectories and sequences, what the trainer learns from: the server's ids, text, or ids that it makes
      of the text of completions without ids.
    - `carries_images`: the records have the images, audio and files of prompts, or train no tokens. Otherwise
      completions with such content in their prompt are left out, unless the user wants them with placeholders.
    - `load`: the line of Python that loads the files, with `{files}` for the path, or the paths by part. Empty if
      `datasets.load_dataset` loads them, or if trainers name their files themselves.
    - `takes_credit`: False if the file has the rewards as they were given.
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
        """Whether the trainer imitates every item, so that users should select rollouts by their rewards."""
        return self.imitates or self.input == "conversations"


@dataclass(frozen=True, kw_only=True, slots=True)
class Exporter:
    """The object that a package registers under `art_otel.exporters`. The first of `formats` is the default."""

    name: str
    summary: str
    formats: Sequence[Format]


@dataclass(frozen=True, kw_only=True, slots=True)
class NotCarried:
    """A field that the format cannot contain: how many selected trajectories have it, and a note.

    `trajectories` is None if messages and tokens would have to be read to count them.
    """

    trajectories: int | None
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportReport:
    """Counts of an export.

    `skipped` counts parts of trajectories by reason (histories, sequences, completions, pairs, records). `changed`
    counts changes that the format requires. `not_carried` counts fields by name. `unsuccessful` counts used
    trajectories with a reward of 0 or less, if the trainer imitates every item. `other_rewards` has the names of the
    existing rewards, if no selected trajectory has the reward that counts. `helps` has advice by reason, except for the
    exporter's own reasons. `parts` counts the records of train, val and test, if the tasks were divided. `load` is the
    line of Python that loads the files, if there is one.
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
    """The export would have no record, so nothing was written. The message has reasons and advice, `report` counts."""

    def __init__(self, message: str, report: ExportReport) -> None:
        super().__init__(message)
        self.report = report
