"""Exports to formats of token ids that carry no images leave out what was sampled behind them, and say so."""

import pytest

from art_otel.errors import UsageError
from art_otel.exporting import export, find_exporter
from tests.data.rollouts import rollout
from tests.data.test_images import browsing

CARRY = (("trinity", "payloads"), ("art", "trajectories"))
OF_TOKENS = (
    ("openenv", "traces"),
    ("primerl", "samples"),
    ("skyrl", "rollouts"),
    ("tinker", "datums"),
    ("trl", "grpo"),
    ("trl", "sft"),
    ("verl", "rollouts"),
)


def seen():
    return [rollout(browsing(), "r", reward=1.0, group_id="g")]


@pytest.mark.parametrize(("name", "form"), OF_TOKENS)
def test_formats_of_tokens_leave_them_out_unless_placeholders_are_wanted(tmp_path, name, form):
    report = export(seen(), name, tmp_path / "left", format=form)
    assert report.skipped["completions: images not carried"] + report.skipped["images not carried"] == 2
    report = export(seen(), name, tmp_path / "kept", format=form, images="placeholders")
    assert not any("images" in reason for reason in report.skipped)


@pytest.mark.parametrize(("name", "form"), CARRY)
def test_formats_that_carry_images_have_all(tmp_path, name, form):
    assert all(one.carries_images for one in find_exporter(name).formats)
    report = export(seen(), name, tmp_path, format=form)
    assert report.records
    assert not any("images" in reason for reason in report.skipped)


def test_conversations_carry_images_themselves(tmp_path):
    with pytest.raises(UsageError, match="images='placeholders': this option is for token ids"):
        export(seen(), "trl", tmp_path, format="chat", images="placeholders")
