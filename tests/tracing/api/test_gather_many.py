"""Many rollouts gathered at once: their order, their bound, their failures, their groups and their progress."""

import asyncio
import io
from functools import partial

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from art_otel import gather_trajectories, gather_trajectory, gather_trajectory_groups, rollout
from art_otel.errors import UsageError
from art_otel.tracing.gathering.gather_many import _Failures
from tests.tracing.api.app import questions
from tests.tracing.api.test_gather import agent_of


def test_many_keep_their_order_and_their_bound(app):
    at_once, most = 0, 0

    @rollout(name="agent")
    async def agent(number):
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.001 * (number % 5))
        await app.ask_later(f"{number}")
        at_once -= 1
        return number

    found = asyncio.run(gather_trajectories((agent(number) for number in range(30)), max_concurrent=4))
    assert [trajectory.result for trajectory in found] == list(range(30))
    assert most == 4
    assert asyncio.run(gather_trajectories([])) == []


def test_a_loop_is_given_each_as_it_ends(app):
    may_end = {}

    @rollout(name="agent")
    async def agent(number):
        await may_end.setdefault(number, asyncio.Event()).wait()
        return await app.ask_later(f"{number}")

    async def run():
        order = []
        async with asyncio.timeout(30):
            gathering = gather_trajectories([agent(number) for number in range(3)])
            may_end[2] = asyncio.Event()
            may_end[2].set()
            async for trajectory in gathering:
                order.append(questions(trajectory)[0])
                may_end[2 - len(order)].set()
                if len(order) == 2:
                    break
            return order

    assert asyncio.run(run()) == ["2", "1"]
    assert [trajectory.status for trajectory in app.convert()[0]].count("ok") == 2


def test_groups_are_given_as_they_fill(app):
    @rollout(group_id=str)
    async def agent(task):
        return await app.ask_later(f"{task}")

    async def run(**options):
        works = [agent(task) for task in (1, 2, 1, 2, 3)]
        groups = gather_trajectories(works, max_concurrent=1).groups(**options)
        return [(group.group_id, len(group.trajectories)) async for group in groups]

    assert asyncio.run(run(size=2)) == [("1", 2), ("2", 2), ("3", 1)]
    assert [count for _, count in asyncio.run(run(size=1))] == [1] * 5


def test_it_is_a_coroutine_for_asyncio(app):
    async def run():
        agent = agent_of(app)
        task = asyncio.create_task(gather_trajectories([agent("1"), agent("2")]))
        both = await asyncio.gather(task, gather_trajectories([agent("3")]))
        return [[questions(one) for one in trajectories] for trajectories in both]

    assert asyncio.run(run()) == [[["1"], ["2"]], [["3"]]]


def test_only_so_many_may_fail(app):
    agent = agent_of(app)

    def works(failing):
        return [agent(f"{number}", ValueError(f"{number}") if number in failing else None) for number in range(10)]

    async def run(failing, **options):
        found = await gather_trajectories(works(failing), **options)
        return [trajectory.status for trajectory in found].count("error")

    assert asyncio.run(run(set())) == 0
    assert asyncio.run(run({1, 2, 3}, max_exceptions=3)) == 3
    assert asyncio.run(run({1, 2, 3}, max_exceptions=0.3)) == 3
    assert asyncio.run(run({1, 2, 3, 5, 8})) == 5
    for options in ({"max_exceptions": 0}, {"max_exceptions": 2}, {"max_exceptions": 0.2}):
        with pytest.raises(ValueError, match="1") as caught:
            asyncio.run(run({1, 5, 7}, **options, max_concurrent=1))
        assert f"max_exceptions={options['max_exceptions']} allows no more" in caught.value.__notes__[0]


def test_where_all_raise_before_any_call_the_first_exception_is_raised(app):
    agent = agent_of(app)
    seen = []

    @rollout(name="broken")
    async def broken(number: int) -> None:
        raise NameError(f"misspelled {number}")

    @rollout(name="timed out")
    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def loop():
        async for trajectory in gather_trajectories([broken(0), broken(1)]):
            seen.append(trajectory.status)  # noqa: PERF401 # the loop raises at its end

    def failing():
        return [broken(number) for number in range(3)]

    for run in (lambda: gather_trajectories(failing()), lambda: gather_trajectory_groups({"a": failing()})):
        with pytest.raises(NameError, match="misspelled 0") as caught:
            asyncio.run(run())
        assert "all 3 rollouts raised an exception before any LLM call" in caught.value.__notes__[0]
    with pytest.raises(NameError):
        asyncio.run(loop())
    assert seen == ["error", "error"]

    def statuses(works, **options):
        return [trajectory.status for trajectory in asyncio.run(gather_trajectories(works, **options))]

    assert statuses(failing(), max_exceptions=3) == ["error"] * 3
    assert statuses([*failing(), agent("1")]) == [*["error"] * 3, "ok"]
    assert statuses([*failing(), agent("1", ValueError("later"))]) == ["error"] * 4
    assert statuses([cancelled(), broken(0)]) == ["cancelled", "error"]
    assert statuses([]) == []


def test_what_is_no_bound_is_refused(app):
    agent = agent_of(app)
    for options in ({"max_concurrent": 0}, {"max_exceptions": -1}, {"max_exceptions": float("nan")}):
        with pytest.raises(UsageError, match=next(iter(options))):
            asyncio.run(gather_trajectories([agent("one")], **options))
    assert app.spool.counts.written == 0


def test_a_group_that_is_no_list_of_rollouts_is_told(app):
    agent = agent_of(app)
    for groups in ({"a": agent("one")}, [agent("one")], {"a": partial(agent, "one")}):
        with pytest.raises(UsageError, match=r"\{group_id: \[agent\(task\), …\]\}; gather_trajectories\(\)"):
            asyncio.run(gather_trajectory_groups(groups))
    assert app.spool.counts.written == 0


def test_groups(app):
    @rollout(name="agent")
    async def agent(question):
        return await app.ask_later(question)

    named = rollout(name="named", group_id="own")(agent.__wrapped__)

    async def run():
        by_id = await gather_trajectory_groups({"sums": [agent("1"), agent("2")], "words": [agent("3")]})
        plain = await gather_trajectory_groups([[agent("4"), agent("5")], [named("6")], []], max_concurrent=2)
        return by_id, plain

    by_id, plain = asyncio.run(run())
    assert [(group.group_id, [questions(one) for one in group.trajectories]) for group in by_id] == [
        ("sums", [["1"], ["2"]]),
        ("words", [["3"]]),
    ]
    assert [len(group.trajectories) for group in plain] == [2, 1, 0]
    assert len({group.group_id for group in plain}) == 3
    assert plain[1].group_id == "own"
    stored = {trajectory.rollout_id: trajectory for trajectory in app.convert()[0]}
    for group in (*by_id, *plain):
        for trajectory in group.trajectories:
            assert stored[trajectory.rollout_id].group_id == trajectory.group_id == group.group_id


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_on_a_terminal(app, monkeypatch):
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    agent = agent_of(app)
    asyncio.run(gather_trajectories([agent("1"), agent("2", ValueError("bad"))], max_exceptions=1))
    assert "2/2" in shown.getvalue()
    assert "1 failed · reward 0.5" in shown.getvalue()
    silent = Terminal()
    monkeypatch.setattr("sys.stderr", silent)
    asyncio.run(gather_trajectories([agent("1")], progress=False))
    assert silent.getvalue() == ""


def test_no_bar_elsewhere(app, capsys):
    asyncio.run(gather_trajectories([agent_of(app)("1")]))
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("app")
def test_a_rollout_of_which_nothing_was_recorded_aborts_nothing(monkeypatch):
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False))

    @rollout(name="agent")
    async def agent() -> None:
        raise ValueError("bad")

    found = asyncio.run(gather_trajectory(agent()))
    assert (found.status, found.incomplete_reasons) == ("unfinished", {"missing root": 1})


def test_the_first_failure_is_logged_and_every_one_is_kept(app, caplog):
    agent = agent_of(app)
    errors = [NameError("first"), NameError("second")]
    works = [agent("0", errors[0]), agent("1", errors[1]), agent("2")]
    found = asyncio.run(gather_trajectories(works, max_exceptions=2, max_concurrent=1))
    assert [trajectory.exception for trajectory in found] == [*errors, None]
    (record,) = [one for one in caplog.records if "raised; its trajectory says so" in one.message]
    assert record.exc_info[1] is errors[0]
    assert "Traceback" in caplog.text
    assert [trajectory.exception for trajectory in app.convert()[0]] == [None] * 3


def test_failures_are_counted_as_art_counts_them():
    for most, total, permitted in ((0, 8, 0), (0.29, 100, 29), (0.5, 3, 1), (1, 8, 1), (2.5, 8, 2), (9, 8, 8)):
        failures = _Failures(most, total)
        assert [failed for failed in range(total + 1) if failures.permits(failed)] == list(range(permitted + 1))


def test_a_group_is_a_sequence_of_its_trajectories(app):
    (group,) = asyncio.run(gather_trajectory_groups({"g": [agent_of(app)("1"), agent_of(app)("2")]}))
    assert (len(group), list(group)) == (2, list(group.trajectories))
    assert repr(group) == "<TrajectoryGroup 'g': 2 trajectories, rewards 0.5 to 0.5>"


def test_a_group_id_in_another_call_is_another_group(app):
    """As a training loop that names its groups after tasks; live and converted say the same."""
    agent = agent_of(app)

    async def run():
        groups = [await gather_trajectory_groups({"task-7": [agent("1"), agent("2")]}) for _ in range(3)]
        continued = groups[0][0].trajectories[0].gathering
        (more,) = await gather_trajectory_groups({"task-7": [agent("3")]}, gathering=continued)
        return [list(group) for (group,) in groups], list(more)

    rounds, more = asyncio.run(run())
    keys = [{trajectory.group_key for trajectory in members} for members in rounds]
    assert [len(of_round) for of_round in keys] == [1, 1, 1]
    assert len(set.union(*keys)) == 3
    assert {one.group_key for one in more} == keys[0]
    stored = {trajectory.rollout_id: trajectory for trajectory in app.convert()[0]}
    for one in (*(one for members in rounds for one in members), *more):
        assert stored[one.rollout_id].group_key == one.group_key != None  # noqa: E711 # a key, and the same
        assert stored[one.rollout_id].metadata == {}


def test_single_rollouts_and_rollouts_outside_of_gathering_are_one_group_by_its_id(app):
    agent = rollout(name="agent", group_id="task-7")(agent_of(app).__wrapped__)

    async def run():
        alone = await asyncio.gather(*(gather_trajectory(agent(str(number))) for number in range(3)))
        await agent("4")
        return alone

    alone = asyncio.run(run())
    assert {one.group_key for one in (*alone, *app.convert()[0])} == {(None, None, "task-7")}


def test_the_step_and_the_gathering_are_also_those_of_rollouts_inside(app):
    inner = rollout(name="inner", group_id="inside")(agent_of(app).__wrapped__)

    @rollout(name="outer")
    async def outer(question):
        await inner(question)
        (one,) = await gather_trajectories([inner(question)])
        return one.gathering, (await gather_trajectory(inner(question))).gathering

    @rollout(name="own", training_step=9)
    async def own():
        await app.ask_later("q")

    async def run():
        return await gather_trajectories([outer("1"), own()], training_step=3)

    one, of_own_step = asyncio.run(run())
    of_list, of_one = one.result
    assert (one.training_step, of_own_step.training_step) == (3, 9)
    assert one.gathering == of_own_step.gathering == of_one != of_list
    assert [child.training_step for child in one.children] == [3, 3, 3]
    assert [child.gathering for child in one.children] == [one.gathering, of_list, one.gathering]
    with pytest.raises(UsageError, match="training_step"):
        asyncio.run(gather_trajectories([outer("1")], training_step="first"))
