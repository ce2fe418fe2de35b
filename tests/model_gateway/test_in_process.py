"""A gateway inside the app: a black-box agent's calls are those of the rollout that started it."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import art_otel
from art_otel.errors import UsageError
from art_otel.model_gateway.settings import SETTINGS, GatewayKeywords
from art_otel.receiver.settings import SETTINGS as OF_RECEIVER
from art_otel.receiver.settings import ReceiverKeywords, ReceiverSettings
from art_otel.trajectories import Trajectory
from tests.model_gateway.gateways import recorded
from tests.model_gateway.record_vllm import replayed

ROOT = Path(__file__).parents[2]


def run(case: str, address: str, folder: Path) -> list[Trajectory]:
    """Run an app; what its gateway wrote itself."""
    command = [sys.executable, "-W", "error", "-m", "tests.model_gateway.app", case, address, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return recorded(folder)


@pytest.mark.long
@pytest.mark.parametrize("case", ["agents", "limited", "client", "unsampled", "unread"])
def test_calls_are_those_of_the_rollout_that_gave_the_address(tmp_path, address, case):
    assert run(case, address, tmp_path) == []


@pytest.mark.long
def test_a_call_that_runs_when_its_rollout_returns_is_waited_for_or_missed(tmp_path, address):
    assert run("late", address, tmp_path) == []


@pytest.mark.long
def test_a_reward_that_would_be_of_another_rollout_is_refused(tmp_path, address):
    assert run("ended", address, tmp_path) == []


@pytest.mark.long
def test_what_became_of_prompts_is_metadata_of_the_app_s_rollout(tmp_path):
    with replayed() as url:
        assert run("exact", url, tmp_path) == []


@pytest.mark.long
def test_what_no_rollout_asks_is_a_conversation(tmp_path, address):
    (trajectory,) = run("outside", address, tmp_path)
    assert len(trajectory.calls) == 2
    assert trajectory.metadata == {"inferred": True}


@pytest.mark.long
def test_a_judge_has_an_address_of_its_own(tmp_path, address):
    (alone,) = run("judged", address, tmp_path)
    assert [call.marked_untrained for call in alone.calls] == ["a/judge"]


@pytest.mark.long
def test_side_calls_are_told_by_their_models(tmp_path, address):
    (alone,) = run("helpers", address, tmp_path)
    assert [(call.request_model, call.marked_untrained) for call in alone.calls] == [("m", "another model")]


def test_every_setting_is_a_keyword():
    assert [*GatewayKeywords.__annotations__] == [setting.name for setting in SETTINGS]
    assert [*ReceiverKeywords.__annotations__] == [setting.name for setting in OF_RECEIVER]


def test_a_generator_of_patterns_is_read_once():
    settings = ReceiverSettings(scrub_patterns=(text for text in ("PIN [0-9]+",)))
    assert settings.scrub_patterns == ("PIN [0-9]+",)


@pytest.mark.parametrize(
    ("upstream", "options", "said"),
    [
        ([], {}, "--upstream is missing"),
        ("ftp://host", {}, "not the address of a model server"),
        ("http://host", {"tokens": "exakt"}, "passthrough, exact"),
        ("http://host", {"listen": "here"}, "HOST:PORT"),
        ("http://host", {"scrub": "of"}, "on, content, mark, off"),
        ("http://host", {"rollout_spans": "agent*"}, "a list of texts"),
        ("http://host", {"tls_key": "key.pem"}, "TLS needs both"),
        ("http://host", {"grace": "60s"}, "a number, 0 or more"),
        ("http://host", {"retain": -1}, "0 or more"),
        ("http://host", {"max_body_mib": 1.5}, "--max-body.*a whole number"),
        ("http://host", {"scrub_patterns": ["("]}, "not a regular expression"),
        ("http://host", {"scrub_patterns": None}, "a list of texts"),
        ("http://host", {"rollout_attributes": [1]}, "a list of texts"),
    ],
)
def test_what_makes_no_sense_is_said_at_the_start(tmp_path, upstream, options, said):
    async def run() -> None:
        async with art_otel.gateway(upstream, dir=tmp_path, **options):
            pass

    with pytest.raises(UsageError, match=said):
        asyncio.run(run())
