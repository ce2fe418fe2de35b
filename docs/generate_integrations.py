"""Write docs/integrations.md from what the tests know: `uv run python -m docs.generate_integrations`.

Each cell is computed: recordings of real instrumentors and frameworks are converted, formats and exporters are listed
from their registries, and the versions of trainers are those that the exporters' tests install.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import art_otel
from art_otel.exporting import installed_exporters
from art_otel.sources import all_formats
from art_otel.trajectories import Trajectory
from docs.recorder_table import recorder_rows
from tests.dialects.recording.tables.newest import DAY, PYTHON

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "integrations.md"
RECORDINGS: Final = ROOT / "tests" / "recordings"
FRAMEWORKS: Final = ROOT / "tests" / "trajectories" / "frameworks"

INSTRUMENTORS: Final = {
    "openinference": "OpenInference 0.1.66",
    "traceloop": "OpenLLMetry 0.62.4",
    "genai_span": "genai-openai 1.3b0",
    "genai_event": "genai-openai 1.3b0, events",
    "otelv2_span": "openai-v2 2.4b0",
    "otelv2_legacy": "openai-v2 2.4b0, old events",
}
SCENARIOS: Final = {
    "sync_tools": "tools, several turns",
    "async_tools": "async client",
    "stream_sync": "streams",
    "n2": "`n=2`",
    "parse": "structured output (`.parse`)",
    "responses_api": "Responses API",
    "raw_response": "raw responses",
    "error_retry": "failures and retries",
    "long100": "conversations of 402 messages",
}
PACKAGES: Final = {
    "art": ("openpipe-art",),
    "atif": ("harbor", "atif"),
    "nemogym": ("nemo-gym",),
    "openenv": ("openenv",),
    "primerl": ("verifiers",),
    "skyrl": ("skyrl",),
    "tinker": ("tinker-cookbook",),
    "trinity": ("trinity-rft",),
    "trl": ("trl",),
    "verl": ("verl",),
}
"""The packages whose own readers an exporter's tests run."""

INTRODUCTION: Final = """\
# Works with

`uv run python -m docs.generate_integrations` generates this page. Every cell is measured: on recordings of real
programs, and with the trainers' own readers.
"""

INSTRUMENTORS_TEXT: Final = """\
## Instrumentors of the `openai` client

What a dump of each instrumentor contains. Recorded with the `openai` client 3.52, against a server that returns token
ids. With 3.57, OpenInference, OpenLLMetry and genai-openai write the same attributes.

- **tokens**: messages, token ids and logprobs
- **messages**: messages without token ids
- *italics*: something is missing; the trajectory has this reason
- **2 of 3 calls**: the instrumentor recorded no span for the others

If [art-otel traces the app](how-to/trace-an-app.md), there are token ids with every instrumentor, because art-otel
takes ids and logprobs from the response itself.
"""

FRAMEWORKS_TEXT: Final = """\
## Frameworks

Real agents with their own instrumentors, together with OpenLLMetry's for the `openai` client. If two instrumentors
record a call, it is counted once.
"""

RECORDERS_HEAD: Final = ("recorded by", "releases", "right", "what is missing")
RECORDERS_TEXT: Final = """\
## Other clients and frameworks

Real clients and frameworks, recorded against a model server that kept all requests and answers. **Right** means that
every message, tool call and answer is recorded as the server saw it, call by call, and every answer is trained.
**Flagged** means that the recorder loses something, and the trajectory is incomplete and names it. Then
[use another recorder](spec/recorders.md#what-recorders-lose).

The newest releases (of {day}) played the harder conversation: three turns of the user, a text with two tool calls, a
call without a text, an empty and a failing result, answers that begin with spaces, are JSON, and are `null`. So did,
in one way each, the release before that is named behind it, with the same result. Other recordings ask for the weather
of two cities.

The newest clients are {clients}.
OTel's google-genai instrumentor takes no google-genai 3 and records nothing with it (`art-otel doctor` says so): its
recordings are of 2.34.0. With version 3, use OpenInference's.

Not judged: mlflow 3.18.0, since its package `mlflow-skinny` is not in the registry; openai-v2 2.3b0, which does not run
with today's `wrapt`; Weave and Opik, whose SDKs send to their own backends; streams of langsmith 0.15.1's
`wrap_anthropic`, which fail with anthropic 2.14.0.
"""

FORMATS_TEXT: Final = """\
## Trace formats

art-otel detects the format by content, plain or compressed. [Convert dumps](how-to/dumps.md) says how to get dumps from
each backend.
"""

TRAINERS_TEXT: Final = """\
## Trainers

Each exporter is a separate package. Its tests read the files back with the trainer's own code.
[Exporters](exporters.md) says how to use and write them.
"""


def integrations_page() -> str:
    """The page."""
    sections = (
        (INSTRUMENTORS_TEXT, _instrumentors()),
        (FRAMEWORKS_TEXT, _frameworks()),
        (
            RECORDERS_TEXT.format(day=DAY, clients=_clients()),
            _table(RECORDERS_HEAD, recorder_rows()),
        ),
        (FORMATS_TEXT, _formats()),
        (TRAINERS_TEXT, _trainers()),
    )
    return "\n".join([INTRODUCTION, *(f"{text}\n{table}" for text, table in sections)])


def _clients() -> str:
    return ", ".join(f"`{name}` {PYTHON[name]}" for name in ("openai", "anthropic", "google-genai", "litellm", "boto3"))


def _instrumentors() -> str:
    return _table(["", *INSTRUMENTORS.values()], ([said, *_coverages(name)] for name, said in SCENARIOS.items()))


def _coverages(scenario: str) -> list[str]:
    recorded = [_converted(_recording(mode, scenario)) for mode in INSTRUMENTORS]
    calls = [sum(len(trajectory.calls) for trajectory in trajectories) for trajectories in recorded]
    return [_coverage(*each, max(calls)) for each in zip(recorded, calls, strict=True)]


def _recording(mode: str, scenario: str) -> list[Path]:
    return [
        path for name in (f"{scenario}.jsonl", f"{scenario}.logs.jsonl") if (path := RECORDINGS / mode / name).exists()
    ]


def _coverage(trajectories: Sequence[Trajectory], calls: int, expected: int) -> str:
    reasons = Counter[str]()
    for trajectory in trajectories:
        reasons.update(trajectory.incomplete_reasons)
    if reasons:
        return f"*{', '.join(sorted(reasons))}*"
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    kept = "tokens" if all(turn.token_ids is not None for turn in turns) else "messages"
    return kept if calls == expected else f"{calls} of {expected} calls{': ' * bool(calls)}{kept * bool(calls)}"


def _frameworks() -> str:
    rows = re.findall(
        r"^\| (`[^|]+`) \| ([^|]+) \| [^|]+ \|$", (FRAMEWORKS / "README.md").read_text("utf-8"), re.MULTILINE
    )
    return _table(
        ["recorded by", "LLM calls", "failed", "complete"],
        (
            [
                said.strip(),
                *_counts(_converted([FRAMEWORKS / f"{name}.jsonl" for name in re.findall(r"`([^`]+)`", names)])),
            ]
            for names, said in rows
        ),
    )


def _counts(trajectories: Sequence[Trajectory]) -> list[str]:
    calls = [call for trajectory in trajectories for call in trajectory.calls]
    reasons = sorted({reason for trajectory in trajectories for reason in trajectory.incomplete_reasons})
    complete = f"no: {', '.join(reasons)}" if reasons else "yes"
    return [str(len(calls)), str(sum(call.failed for call in calls)), complete]


def _converted(files: Sequence[Path]) -> list[Trajectory]:
    with TemporaryDirectory() as folder:
        art_otel.convert([str(path) for path in files], folder, workers=1)
        return list(art_otel.read_trajectories(folder))


def _formats() -> str:
    rows = (
        [f"`{one.name}`", "yes" if one.table else "no", ", ".join(one.not_in_format) or "nothing"]
        for one in all_formats()
    )
    return _table(["format", "also as Parquet", "what it cannot carry"], rows)


def _trainers() -> str:
    return _table(["exporter", "files", "for", "read back with"], _exporter_rows())


def _exporter_rows() -> Iterator[list[str]]:
    for found in installed_exporters():
        if found.exporter is not None:
            files = ", ".join(f"`{one.name}`" for one in found.exporter.formats)
            yield [
                f"[{found.name}](../exporters/{found.name}/README.md)",
                files,
                found.exporter.summary,
                _tested(found.name),
            ]


def _tested(exporter: str) -> str:
    text = "".join(path.read_text("utf-8") for path in sorted((ROOT / "exporters" / exporter / "tests").glob("*.py")))
    found = [
        f"{package} {pins[0]}"
        for package in PACKAGES.get(exporter, ())
        if (pins := re.findall(rf'"{package}(?:\[\w+\])?==([\d.]+)"', text))
    ]
    return ", ".join(found) or "types of the `openai` client"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    PAGE.write_text(integrations_page(), encoding="utf-8")
