"""pytest's plugin: with `--rollouts`, a test is a rollout, and its outcome the reward.

Invariant: without the option nothing is loaded and nothing happens. A test's result is never changed. A test that
passed has the reward 1.0, one that failed, or a part of which did (a subtest), 0.0; one that was skipped or was
expected to fail and did, or whose fixtures failed, has none. A reward that the test gives itself stands. A rollout
spans the test's fixtures, too, and a test that is run again is another rollout. Its group is the test with its
parameters, without the one called `attempt`: that tells attempts at the same task from each other.
"""

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict

import pytest

if TYPE_CHECKING:
    from art_otel.tracing.api.rollout import Rollout
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

        config.pluginmanager.register(_TestRollouts(art_otel.configure()), "art-otel-rollouts")


class _TestRollouts:
    """The hooks that make a rollout of each test."""

    def __init__(self, tracing: "Tracing") -> None:
        self._tracing = tracing
        self._block: Rollout | None = None
        self._running: RunningTrajectory | None = None
        self._error: BaseException | None = None
        self._outcomes: list[str] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """End the last rollout of a test, also where the test was interrupted."""
        try:
            return (yield)
        finally:
            self._end()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begin a rollout before the test's fixtures, whenever they are set up: plugins run a test several times."""
        from art_otel.tracing.api.rollout import rollout  # noqa: PLC0415 # as above

        self._end()
        self._block = rollout(name=item.nodeid, **_task(item))
        self._running = self._block.__enter__()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note the outcomes of the test's subtests and its own, which is the last, and what is no failed assertion."""
        report = yield
        if report.when == "call":
            self._outcomes.append(report.outcome)
        if report.failed and call.excinfo is not None and not _is_judgment(call.excinfo.value):
            self._error = call.excinfo.value
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        """Take the outcome as the reward, unless the test has given one, and before fixtures may give another."""
        decisive = "failed" if "failed" in self._outcomes else "".join(self._outcomes[-1:])
        if self._running is not None and self._running.reward is None and decisive in _REWARDS:
            self._running.reward = _REWARDS[decisive]

    def _end(self) -> None:
        """End the rollout that runs, if one does."""
        block, error = self._block, self._error
        self._block = self._running = self._error = None
        self._outcomes = []
        if block is not None:
            block.__exit__(None if error is None else type(error), error, None)

    def pytest_unconfigure(self) -> None:
        """Write what is left."""
        self._tracing.shutdown()


def _is_judgment(error: BaseException) -> bool:
    """Whether a test says by it that the agent failed, and not that something broke."""
    return isinstance(error, AssertionError | pytest.fail.Exception)


class _TestTask(TypedDict):
    """What a rollout says of the test."""

    group_id: str
    metadata: dict[str, object]


def _task(item: pytest.Item) -> _TestTask:
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
    return _TestTask(group_id=f"{test}[{task}]" if task else test, metadata=named)
