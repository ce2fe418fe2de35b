"""Trinity-RFT's own storage, classes and trainer input on our files: what it trains is what was sampled."""

import json
import os
import sqlite3
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from art_otel import batches
from art_otel.exporting import ExportStats, ScoredTrajectory, export
from art_otel_trinity import EXPORTER
from art_otel_trinity.database import DatabaseConfig
from art_otel_trinity.experiences import ExperiencesConfig, TrinityExperience, encode_experiences
from tests.exporting.samples import branching, completion_ids, conversation, group, looking, said
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

REQUIREMENTS = (
    "torch==2.13.0",
    "ray==2.60.0",
    "tensordict==0.10.0",
    *("transformers<6", "safetensors<1", "sqlalchemy[asyncio]<3", "aiosqlite<1", "datasets>=4.7,<5", "omegaconf<3"),
    *("numpy<3", "pandas<3", "httpx<1", "openai<4", "pybase64<2", "codetiming", "hydra-core"),
    *("sortedcontainers", "tensorboard", "peft<1"),
)
"""What Trinity's buffers and its verl trainer's input import; all that they require would be everything that trains."""
RELEASES = {"0.6": ("verl==0.9.1", "trinity-rft==0.6.0"), "0.5": ("verl==0.7.1", "trinity-rft==0.5.2")}
"""By the option that it needs, the newest and the one before, which asks for this verl."""
CHOICE = {"advantage": "grpo_sample"}
FLOATS = ("logprobs", "advantages", "token_level_reward")


def rollouts():
    other = conversation("r-other", "Rain.", 1.0, group_id="h", training_step=4)
    first, second, third = group()
    return [first, other, second, branching(), third]


def ours(config) -> list[TrinityExperience]:
    stream = batches(rollouts(), advantage="grpo_sample")
    items = [ScoredTrajectory(trajectory=one, turn_rewards=rewards) for one, rewards in stream.trajectories()]
    return list(encode_experiences(iter(items), config, ExportStats()))


def told(one: TrinityExperience) -> dict:
    """Our experience in the words of the script."""
    arrays = {name: getattr(one, name) for name in ("tokens", "action_mask", *FLOATS)}
    arrays["returns"] = one.advantages
    fields = ("prompt_length", "reward", "truncate_status", "response_text", "messages", "tools", "info", "metrics")
    eid = one.eid
    return {
        "eid": {name: getattr(eid, name) for name in ("batch", "task", "run", "step", "suffix")},
        **{name: getattr(one, name) for name in fields},
        **{name: None if array is None else array.tolist() for name, array in arrays.items()},
        "dtypes": {name: f"torch.{array.dtype}" for name, array in arrays.items() if array is not None},
    }


@pytest.fixture(scope="module", params=RELEASES)
def release(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def folder(release, tmp_path_factory):
    return tmp_path_factory.mktemp(f"trinity-{release}")


@pytest.fixture(scope="module")
def theirs(release, folder):
    """What Trinity makes of our files."""
    python = trainer_python("trinity-buffers", *REQUIREMENTS, alone=RELEASES[release])
    export(rollouts(), EXPORTER, folder / "x.db", options={"release": release}, **CHOICE)
    export(rollouts(), EXPORTER, folder / "out", format="payloads", options={"unit": "call"}, **CHOICE)
    script = Path(__file__).with_name("read_with_trinity.py")
    paths = [folder / "x.db", folder / "theirs.db", folder / "out" / "payloads"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(part) for part in (python, script, *paths)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=clean | {"WANDB_MODE": "offline", "RAY_USAGE_STATS_ENABLED": "0"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def json_of(value):
    return json.loads(json.dumps(value))


def test_its_storage_gives_the_experiences_in_order(theirs):
    assert theirs["queried"] == [json_of(told(one)) for one in ours(DatabaseConfig())]


def test_its_storage_reads_the_newest_first(theirs):
    expected = [told(one)["eid"] for one in ours(DatabaseConfig())]
    assert [one["eid"] for one in theirs["read"]] == expected[:-3:-1]


def test_its_own_tables_are_like_ours(theirs, folder):
    assert theirs  # it made them
    assert tables(folder / "theirs.db") == tables(folder / "x.db")


def tables(path: Path) -> dict:
    with closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master ORDER BY name")]
        return {name: database.execute(f"PRAGMA table_xinfo({name})").fetchall() for name in names}


def test_payloads_are_experiences_and_survive_its_own_serialize_many(theirs):
    expected = [json_of(told(one)) for one in ours(ExperiencesConfig(unit="call"))]
    tasks = {}
    for one in expected:
        tasks.setdefault((one["eid"]["batch"], one["eid"]["task"]), []).append(one)
    assert theirs["tasks"] == list(tasks.values())
    assert theirs["again"] == theirs["tasks"]


def test_it_trains_what_was_sampled(theirs):
    proto = theirs["proto"]
    masked = [
        token
        for row, mask in zip(proto["responses"], proto["response_mask"], strict=True)
        for token, trained in zip(row, mask, strict=True)
        if trained
    ]
    tools = completion_ids(looking("Zürich"))
    texts = ["Rain.", "Rain.", "Rain, or so.", "Rain.", "I do not know.", "Yes.", "Sun."]
    # Four conversations look something up, and so does the first call of the branching one.
    sampled = [*tools * 5, *(token for text in texts for token in completion_ids(said(text)))]
    assert Counter(masked) == Counter(sampled)


def test_its_batch_has_our_rewards_logprobs_groups_and_advantages(theirs):
    proto, expected = theirs["proto"], ours(DatabaseConfig())
    assert proto["seen"] == [one.tokens.tolist() for one in expected]
    assert proto["uid"] == [f"{one.eid.batch}/{one.eid.task}" for one in expected]
    assert proto["model_versions"] == [7] * len(expected)
    for row, one in enumerate(expected):
        size = len(one.action_mask)
        assert proto["token_level_scores"][row][:size] == [*[0.0] * (size - 1), one.reward]
        for name, array in (("rollout_log_probs", one.logprobs), ("advantages", one.advantages)):
            assert proto[name][row][:size] == array.tolist()
            assert not any(proto[name][row][size:])


def test_step_wise_grpo_takes_the_last_call_of_a_run(theirs):
    """Its advantages of whole runs are ours, but of a run that is alone, to which it gives its reward."""
    weighed = {(one["eid"]["suffix"], one["info"]["rollout_id"]): one for one in theirs["weighed"]}
    for one in ours(ExperiencesConfig(unit="call")):
        found = weighed[one.eid.suffix, one.info["rollout_id"]]["advantages"]
        expected = [one.reward] * len(found) if one.eid.task == "h" else one.advantages.tolist()
        assert found == pytest.approx(expected, abs=1e-4)
