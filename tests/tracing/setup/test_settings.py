"""Every setting is one variable and one keyword of the same meaning, and bad values are found."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel import configure
from art_otel.errors import UsageError
from art_otel.tracing.setup import settings as module
from art_otel.tracing.setup.settings import VARIABLES, KeptSecrets, Settings, read_settings
from tests.docs.pages import text_of

EXAMPLES = [
    ("enabled", "0", False),
    ("enabled", " Yes ", True),
    ("project", "p", "p"),
    ("model", "m", "m"),
    ("split", "val", "val"),
    ("spool", "0", False),
    ("spool", "1", True),
    ("spool_days", "7", 7.0),
    ("spool_days", "never", None),
    ("capture_content", "off", False),
    ("request_tokens", "1", True),
    ("scrub", "content", "content"),
    ("scrub", "mark", "mark"),
    ("scrub", "off", "off"),
    ("scrub_patterns", "acme-[0-9a-f]{3,5}", (re.compile("acme-[0-9a-f]{3,5}"),)),
    ("scrub_keeps", "^test", KeptSecrets(re.compile("^test"))),
    ("trust_rollout_ids", "any", "any"),
    ("rollout_spans", "agent *, run ,", ("agent *", "run")),
    ("grace_seconds", "0.5", 0.5),
    ("policy_version", "v1", "v1"),
    ("policy_version_header", "x-version", "x-version"),
    ("closed_streams", "mask", "mask"),
    ("closed_streams", "train", "train"),
    ("instrumentor", "openinference", "openinference"),
    ("exporters", "otlp, console", ("otlp", "console")),
    ("exporters", "none", ()),
]

BAD = [
    ("enabled", "perhaps"),
    ("spool_days", "soon"),
    ("capture_content", "of"),
    ("request_tokens", "2"),
    ("scrub", "everything"),
    ("scrub", "0"),
    ("scrub_patterns", "acme-("),
    ("scrub_keeps", "("),
    ("trust_rollout_ids", "all"),
    ("grace_seconds", "-1"),
    ("grace_seconds", "nan"),
    ("grace_seconds", "soon"),
    ("instrumentor", "mine"),
    ("project", "  "),
    ("dir", "~nobody-of-this-name/art"),
    ("spool", "~nobody-of-this-name"),
]


def from_environment(environ: dict[str, str]) -> Settings:
    settings, problems = read_settings(environ, {})
    if problems:
        raise UsageError(problems[0].text)
    return settings


@pytest.mark.parametrize(("name", "text", "value"), EXAMPLES)
def test_a_variable_and_its_keyword_mean_the_same(name, text, value):
    by_variable = from_environment({VARIABLES[name]: text})
    by_keyword, problems = read_settings({}, {name: text})
    assert not problems
    assert getattr(by_variable, name) == getattr(by_keyword, name) == value
    assert by_variable == by_keyword


@pytest.mark.parametrize(("name", "text", "value"), EXAMPLES)
def test_a_value_that_was_read_reads_as_itself(name, text, value):
    once, _ = read_settings({}, {name: text})
    again, problems = read_settings({}, {name: getattr(once, name)})
    assert not problems
    assert getattr(again, name) == value


@pytest.mark.parametrize(("name", "text"), BAD)
def test_a_bad_value_names_its_variable_and_says_what_is_right(name, text):
    with pytest.raises(UsageError, match=f"{VARIABLES[name]}=.*: write"):
        from_environment({VARIABLES[name]: text})
    _, problems = read_settings({VARIABLES[name]: "1"}, {name: text})
    assert [problem.name for problem in problems] == [name]
    assert problems[0].text.startswith(f"{name}=")


def test_values_of_a_keyword_s_own_type():
    given: dict[str, object] = {
        "dir": Path("/x"),
        "spool": Path("/y"),
        "rollout_spans": ["a", " b "],
        "grace_seconds": 3,
        "policy_version": lambda: "v",
        "project": None,
        "exporters": None,
    }
    found, problems = read_settings({}, given)
    assert not problems
    assert (found.dir, found.spool_folder) == (Path("/x"), Path("/y"))
    assert (found.rollout_spans, found.grace_seconds, found.project) == (("a", "b"), 3.0, None)
    assert isinstance(found.policy_version, Callable)
    assert found == read_settings({}, given)[0]


@pytest.mark.parametrize(
    ("function", "version"),
    [
        (lambda: "v", "v"),
        (lambda model: model, "policy-v12"),
        (lambda version="v": version, "v"),  # which holds what it gives
        (lambda *_, **__: "v", "v"),
        ({"policy-v12": "v"}.get, "v"),
        (dict, "{}"),
    ],
)
def test_a_version_s_function_is_asked_by_the_request_s_model_if_it_has_a_parameter(function, version):
    found, problems = read_settings({}, {"policy_version": function})
    assert not problems
    assert str(found.policy_version("policy-v12")) == version


@pytest.mark.parametrize("function", [lambda model, step: (model, step), lambda *, step: step])
def test_a_version_s_function_of_more_is_refused(function):
    _, problems = read_settings({}, {"policy_version": function})
    assert "write a string, or a function that takes the request's model or nothing" in problems[0].text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rollout_spans", 3),
        ("rollout_spans", ["a", 3]),
        ("grace_seconds", True),
        ("dir", 3),
        ("scrub", 3),
        ("scrub_patterns", 3),
        ("scrub_keeps", 3),
    ],
)
def test_a_keyword_of_another_type_is_a_bad_value(name, value):
    _, problems = read_settings({}, {name: value})
    assert [problem.name for problem in problems] == [name]


def test_an_unknown_keyword_is_named():
    _, problems = read_settings({}, {"project_name": "x"})
    assert "project_name" in problems[0].text
    assert "project," in problems[0].text


def test_an_empty_variable_says_nothing():
    found = from_environment(dict.fromkeys(VARIABLES.values(), ""))
    assert found == from_environment({})


def test_a_bad_value_never_captures_more_than_was_asked_for():
    wrong = {"ART_OTEL_CAPTURE_CONTENT": "nope", "ART_OTEL_ENABLED": "nope", "ART_OTEL_SCRUB": "nope"}
    found, problems = read_settings(wrong, {})
    assert len(problems) == 3
    assert (found.capture_content, found.enabled, found.scrub) == (False, False, "content")
    assert not read_settings({"ART_OTEL_SCRUB_PATTERNS": "("}, {})[0].capture_content


def test_a_keyword_comes_before_a_variable():
    found, _ = read_settings({"ART_OTEL_PROJECT": "variable", "ART_OTEL_MODEL": "m"}, {"project": "keyword"})
    assert (found.project, found.model) == ("keyword", "m")


def test_the_folder_stays_when_the_app_changes_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = from_environment({})
    assert found.spool_folder == tmp_path / ".art" / "spool"
    assert from_environment({"ART_OTEL_SPOOL": "0"}).spool_folder is None


@given(st.dictionaries(st.sampled_from(sorted(VARIABLES.values())), st.text()))
def test_no_environment_raises_anything_but_what_it_says(environ):
    found, problems = read_settings(environ, {})
    assert isinstance(found, Settings)
    assert all(VARIABLES[problem.name] in problem.text for problem in problems)


def test_configure_takes_every_setting():
    assert list(inspect.signature(configure).parameters) == list(VARIABLES)
    assert not [name for name in VARIABLES if name != "enabled" and f"`{name}`" not in configure.__doc__]


def test_the_table_has_every_variable_and_keyword_and_every_choice():
    page = text_of("docs/spec/settings.md")
    rows = re.findall(r"^\| `([A-Z_]+)` \| `(\w+)` \|", page, re.MULTILINE)
    assert rows == [(variable, name) for name, variable in VARIABLES.items()]
    for choice in get_args(module.Instrumentor):
        assert f"`{choice}`" in page
