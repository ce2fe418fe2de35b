"""The tables of docs/ name everything that the code names, and nothing else."""

import dataclasses
import re
import runpy
from collections import defaultdict
from collections.abc import Iterator
from typing import get_args, get_type_hints

import pytest

from art_otel import attributes
from art_otel.attributes import RewardSource
from art_otel.conventions.dialects import _PREFIXES, DIALECTS
from art_otel.conventions.recommended_setup import _SWITCHES
from art_otel.sources import all_formats
from art_otel.spans import QuarantineReason
from art_otel.store import ConversionReport
from art_otel.trajectories import EXPLANATIONS, accounting
from art_otel.trajectories.reward_addresses import ADVICE
from tests.docs.pages import DOCS, ROOT, text_of

ATTRIBUTES = text_of("docs/spec/attributes.md")
REPORT = text_of("docs/spec/report.md")
SETTINGS = text_of("docs/spec/settings.md")
NAMES = sorted(value for name, value in vars(attributes).items() if name.isupper())


def section(page: str, heading: str) -> str:
    """What stands below a heading, up to the next one of its level or above."""
    level = heading.split(maxsplit=1)[0]
    _, _, below = page.partition(f"\n{heading}\n")
    assert below, f"no heading {heading!r}"
    return re.split(rf"^#{{1,{len(level)}}} ", below, maxsplit=1, flags=re.MULTILINE)[0]


def first_column(table: str) -> list[str]:
    """What stands as code in the first cell of each row."""
    cells = re.findall(r"^\| *([^|]+?) *\|", table, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_every_name_of_ours_has_a_row():
    rows = first_column(ATTRIBUTES)
    for name in NAMES:
        # A name that ends in a dot or a space is a prefix; its row says what follows.
        is_prefix = name.endswith((".", " "))
        assert any(row.startswith(name) and row != name if is_prefix else row == name for row in rows), name


def test_no_attribute_of_ours_is_invented():
    for row in first_column(ATTRIBUTES):
        if row.startswith("art."):
            assert any(row == name or row.startswith((f"{name}.", name)) for name in NAMES), row


def test_the_order_of_trust_is_the_codes():
    assert first_column(section(ATTRIBUTES, "### Who is trusted")) == [dialect.convention for dialect in DIALECTS]


def test_the_sources_of_rewards_are_the_codes():
    assert first_column(section(ATTRIBUTES, "### Rewards")) == list(get_args(RewardSource))


def test_the_names_that_conventions_own_are_the_codes():
    assert re.findall(r"`([^`]+\.)`", section(ATTRIBUTES, "### What is kept as metadata")) == list(_PREFIXES)


def test_the_reasons_of_damage_are_the_codes():
    assert first_column(section(REPORT, "## Quarantined")) == list(get_args(QuarantineReason))


def test_the_reasons_for_ignoring_are_the_codes():
    named = {value for name, value in vars(accounting).items() if name.isupper() and isinstance(value, str)}
    assert set(first_column(section(REPORT, "## Ignored"))) == named - EXPLANATIONS.keys()


def test_the_reasons_for_rewards_without_a_target_are_the_codes():
    assert first_column(section(REPORT, "## Undeliverable")) == list(ADVICE)


def test_the_reasons_for_incompleteness_are_the_codes():
    assert first_column(section(REPORT, "## Incomplete")) == list(EXPLANATIONS)


def keys(record: type, prefix: str = "") -> Iterator[str]:
    """The paths of a report's values; `[]` stands for each entry of a list."""
    hints = get_type_hints(record)
    for field in dataclasses.fields(record):
        inner = next((kind for kind in (hints[field.name], *get_args(hints[field.name])) if is_record(kind)), None)
        path = f"{prefix}{field.name}"
        if inner is None:
            yield path
        else:
            yield from keys(inner, f"{path}." if inner is hints[field.name] else f"{path}[].")


def is_record(kind: object) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def test_the_keys_of_the_report_are_the_codes():
    assert first_column(section(REPORT, "## Keys")) == list(keys(ConversionReport))


def test_every_format_is_named():
    page = text_of("docs/how-to/dumps.md")
    assert first_column(section(page, "## Formats")) == [known.name for known in all_formats()]


def test_every_switch_for_content_is_named():
    page = text_of("docs/how-to/capture-content.md")
    for switch in _SWITCHES.values():
        for setting in switch.split(" and "):
            assert f"`{setting}`" in page


def test_the_page_of_the_command_line_is_up_to_date():
    generated = runpy.run_path(str(DOCS / "generate_cli.py"))["cli_page"]()
    # Versions of Python break the lines of a usage differently.
    assert generated.split() == text_of("docs/cli.md").split(), "run: uv run python docs/generate_cli.py"


@pytest.mark.long
def test_the_page_of_what_works_with_what_is_up_to_date():
    generated = runpy.run_path(str(DOCS / "generate_integrations.py"))["integrations_page"]()
    assert generated == text_of("docs/integrations.md"), "run: uv run python -m docs.generate_integrations"


def test_the_tables_of_masks_and_limits_is_up_to_date():
    generated = runpy.run_path(str(DOCS / "generate_masks.py"))["recorders_page"]()
    assert generated == text_of("docs/spec/recorders.md"), "run: uv run python -m docs.generate_masks"


def test_every_logger_has_a_row_with_its_levels():
    rows = re.findall(r"^\| (`art_otel[^|]+) \| ([A-Z, ]+) \|", section(SETTINGS, "## Logs"), re.MULTILINE)
    named = {logger: set(levels.split(", ")) for loggers, levels in rows for logger in re.findall(r"`(.+?)`", loggers)}
    used = defaultdict[str, set[str]](set)
    for path in ROOT.glob("art_otel/*/**/*.py"):
        code = path.read_text(encoding="utf-8")
        levels = re.findall(r"\blogger\.(debug|info|warning|error|exception|critical)\(", code)
        assert not levels or "logger = logging.getLogger(__name__)" in code, path
        for level in levels:
            used[f"art_otel.{path.relative_to(ROOT).parts[1]}"].add({"exception": "ERROR"}.get(level, level.upper()))
    assert named == used


def test_troubleshooting_has_an_answer_for_each_reason():
    page = text_of("docs/troubleshooting.md")
    assert set(first_column(section(page, "## A trajectory is incomplete"))) == set(EXPLANATIONS)
