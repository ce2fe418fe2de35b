"""pytest's plugin: with `--rollouts`, a test is a rollout, and its outcome the reward.

Invariant: without the option nothing is loaded and nothing happens. A test's result is never changed. A test that
passed has the reward 1.0, one that failed 0.0; one that was skipped, or whose fixtures failed, has none. A rollout
spans the test's fixtures, too. Its group is the test with its parameters, without the one called `attempt`: that tells
attempts at the same task from each other.
"""

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict

import pytest

if TYPE_CHECKING:
    from art_otel.tracing.api.running import RunningTrajectory
    from art_otel.tracing.setup.configure import Tracing

_ATTEMPT: Final = "attempt"
_REWARDS: Final = {"passed": 1.0, "failed": 0.0}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that switches it on."""
    told = "record each test as a rollout of art-otel, with its outcome as the reward; ART_OTEL_DIR says where"
    parser.getgroup("art-otel").addoption("--rollouts", action="store_true", help=told)


def pytest_configure(config: pytest.Config) -> None:
    """Trace this process, if it is asked for."""
    if config.getoption("rollouts"):
        import art_otel  # noqa: PLC0415 # nothing is loaded without the option

        config.pluginmanager.register(_Rollouts(art_otel.configure()), "art-otel-rollouts")


class _Rollouts:
    """The hooks that make a rollout of each test."""

    def __init__(self, tracing: "Tracing") -> None:
        self._tracing = tracing
        self._running: RunningTrajectory | None = None
        self._error: BaseException | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Open a rollout around the test's fixtures and the test."""
        from art_otel.tracing.api.rollout import rollout  # noqa: PLC0415 # as above

        block = rollout(name=item.nodeid, **_task(item))
        self._running, self._error = block.__enter__(), None
        try:
            return (yield)
        finally:
            error, self._running = self._error, None
            block.__exit__(None if error is None else type(error), error, None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Take the outcome of the test itself as the reward, and what is no failed assertion as an error."""
        report = yield
        if self._running is not None:
            if report.when == "call" and report.outcome in _REWARDS:
                self._running.reward = _REWARDS[report.outcome]
            if report.failed and call.excinfo is not None and not _is_judgment(call.excinfo.value):
                self._error = call.excinfo.value
        return report

    def pytest_unconfigure(self) -> None:
        """Write what is left."""
        self._tracing.shutdown()


def _is_judgment(error: BaseException) -> bool:
    """Whether a test says by it that the agent failed, and not that something broke."""
    return isinstance(error, AssertionError | pytest.fail.Exception)


class _Task(TypedDict):
    """What a rollout says of the test."""

    group_id: str
    metadata: dict[str, object]


def _task(item: pytest.Item) -> _Task:
    test = item.nodeid.split("[", 1)[0]
    callspec: Any = getattr(item, "callspec", None)
    params: Mapping[str, object] = {} if callspec is None else callspec.params
    places: Mapping[str, int] = {} if callspec is None else callspec.indices
    named: dict[str, object] = {}
    for name, value in params.items():
        # As pytest names an object that has no name of its own: by its parameter and its place.
        is_plain = value is None or isinstance(value, str | int | float)
        named[name] = value if is_plain else f"{name}{places[name]}"
    task = ",".join(f"{name}={value}" for name, value in named.items() if name != _ATTEMPT)
    return _Task(group_id=f"{test}[{task}]" if task else test, metadata=named)
