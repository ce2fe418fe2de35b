"""Workflow classes where tracing is off, without a method or with a wrong one, or without a client: each is told."""

import pytest

from art_otel.errors import UsageError
from art_otel.workflows import StepWiseRewardWorkflow
from tests.tracing.api.test_workflows import EACH, STEP_WISE, Propagation, StepWise, run

NOTHING_RECORDS = "art-otel: workflows have no experiences, and reward() receives none, because tracing is turned off"


@pytest.mark.usefixtures("nothing_set_up")
@pytest.mark.parametrize("kind", EACH)
def test_where_tracing_is_off_the_loop_runs_and_a_warning_says_so_once(kind, caplog, monkeypatch):
    monkeypatch.setenv("ART_OTEL_ENABLED", "0")

    class Silent(kind):
        def ask(self, step_num):
            return step_num < 2

    workflow = Silent(None, [])
    assert run(workflow) == run(workflow) == []
    assert workflow.judged == 2 * ([(0, []), (1, []), (2, [])] if kind in STEP_WISE else [(None, [])])
    assert [record.message for record in caplog.records].count(NOTHING_RECORDS) == 1


@pytest.mark.parametrize("kind", EACH)
@pytest.mark.parametrize("missing", ["step", "reward", "max_step_num"])
def test_what_is_abstract_must_be_defined(kind, missing):
    base = kind.__bases__[1]
    form = "" if missing == "max_step_num" or kind in (StepWise, Propagation) else "_async"
    names = {name: getattr(kind, name, None) for name in dir(base) if not name.startswith("_")}
    defined = {name: value for name, value in names.items() if name != f"{missing}{form}"}
    with pytest.raises(TypeError, match=f"{missing}{form}"):
        type("Some", (base,), defined)(task=None, model=None)


@pytest.mark.parametrize("kind", [StepWise, Propagation])
@pytest.mark.parametrize("method", ["step", "reward"])
def test_async_methods_of_the_sync_class_are_refused(kind, method):
    async def later(*_, **__):
        return False

    base = kind.__bases__[1]
    with pytest.raises(TypeError, match=f"art_otel.workflows.Async{base.__name__} and name the method {method}_async"):
        type("Wrong", (kind,), {method: later})


def test_a_model_that_makes_no_client_is_told_where_its_client_is_used():
    class Asks(StepWiseRewardWorkflow):
        max_step_num = 1

        def step(self, step_num):
            return bool(self.client.chat and step_num)

        def reward(self, exps, step_num):
            return len(exps) + step_num

    with pytest.raises(UsageError, match=r"Asks\.client: its model, None, has no get_openai_client"):
        Asks(model=None).run()
    assert Asks(model=None, use_openai_client=False).client is None
    own = Asks()
    own.client = "mine"
    assert own.client == "mine"
