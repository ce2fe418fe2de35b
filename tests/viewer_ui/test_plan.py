"""The plan of a dataset of several models: a model is chosen by a click, and every option by the form."""

import subprocess
import sys

import pytest

from tests.viewer.mixed import SAMPLED, mixed
from tests.viewer_ui.conftest import running, visiting
from tests.viewer_ui.test_pages import serious

pytestmark = pytest.mark.browser

PROBLEM = "A model has to be chosen first."


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return mixed(tmp_path_factory.mktemp("models") / "mixed")


@pytest.fixture
def visit(chromium, models):
    with running(models) as address, visiting(chromium, address) as one:
        yield one
        assert one.said == []


def reasons(visit) -> dict[str, str]:
    """The reasons of the plan, each with what helps."""
    return {
        row.locator("th").inner_text().split("\n")[0]: row.locator("td").last.inner_text()
        for row in visit.page.locator(".outcome .reasons tbody tr").all()
    }


def choose(visit, **options: str) -> None:
    """Fill in the form, and wait for what comes of it."""
    for name, value in options.items():
        field = visit.page.locator(f"#option-{name}")
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
            field.blur()
    visit.until("document.querySelector('.outcome').getAttribute('aria-busy') === 'false'")


def test_a_model_is_chosen_and_each_reason_says_what_helps(visit):
    visit.open("#/plan")
    notice = visit.page.locator(".outcome .notice.failure")
    assert notice.inner_text().startswith(f"{PROBLEM} {SAMPLED} rollouts have completions of several models ('policy'")
    assert reasons(visit)["several models"].startswith("Name the policy's model in the models option")
    notice.get_by_role("link", name="policy", exact=True).click()
    visit.until("location.hash === '#/plan?models=policy' && !document.querySelector('.outcome .notice.failure')")
    assert visit.page.locator("#option-models").input_value() == "policy"
    found = reasons(visit)
    assert {"another model", "marked untrained", "aborted", "ids doubtful"} <= found.keys()
    assert all(found.values())
    choose(visit, models="!judge*", agents="!critic", length="mask")
    visit.until("location.hash === '#/plan?models=%21judge*&agents=%21critic&length=mask'")
    visit.until("document.querySelector('.outcome').innerText.includes('cut at max_tokens')")
    found = reasons(visit)
    assert {"another agent", "another model", "cut at max_tokens", "marked untrained"} <= found.keys()
    assert all(found.values())
    visit.page.get_by_role("link", name="another agent").click()
    visit.settle()
    assert visit.page.locator(".rows-body [role=row]").count() == SAMPLED
    visit.open("#/plan?length=drop&models=*")
    assert "cut at max_tokens" in reasons(visit)


@pytest.mark.parametrize("width", [1280, 400])
def test_pages_are_whole_and_accessible_before_a_model_is_chosen(chromium, models, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    size = {"width": width, "height": 800}
    with running(models) as address, visiting(chromium, address, viewport=size, color_scheme=scheme) as visit:
        visit.open("#/t?q=several-0")
        rollout = visit.page.locator(".rows-body a").first.get_attribute("href")
        for view in ("#/", "#/plan", "#/t?sort=trained", rollout, f"{rollout}/tokens", f"{rollout}/tree"):
            visit.open(view)
            assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
            assert not serious(axe.run(visit.page)), view
        visit.open("#/")
        assert PROBLEM in visit.page.inner_text("main")
        assert visit.said == []


def said_of(visit, rollout_id: str, turn: int = 0) -> list[str]:
    """What the tree and the conversation say of a turn: its line in one, the head of its message in the other."""
    visit.open(f"#/t?q={rollout_id}")
    rollout = visit.page.locator(".rows-body a").first.get_attribute("href")
    visit.open(f"{rollout}/tree")
    line = visit.page.locator(".turn-line").nth(turn)
    said = [line.inner_text()]
    line.get_by_role("link").click()
    head = visit.page.locator(f"[data-turn='{turn}'] .message-head")
    head.wait_for()
    # Chromium renders a message when it comes into view (`content-visibility`): until then `inner_text` is empty.
    return [*said, head.text_content()]


@pytest.mark.parametrize(
    ("rollout_id", "turn", "note"),
    [
        ("several-0", 3, "marked untrained: title"),
        ("doubtful%20text", 0, "text: content doubtful"),
        ("doubtful%20ids", 0, "text: may be trained"),
        ("aborted", 0, "aborted"),
    ],
)
def test_a_turn_says_what_its_call_is_for_and_the_verdict_on_its_text(visit, rollout_id, turn, note):
    for said in said_of(visit, rollout_id, turn):
        assert note in said
        assert ("text:" in said) == note.startswith("text:")
    assert not any("marked" in said or "text:" in said for said in said_of(visit, "alone"))


def test_a_shared_file_says_it_and_offers_no_other_plan(chromium, models, tmp_path):
    file = tmp_path / "shared.html"
    subprocess.run([sys.executable, "-m", "art_otel", "view", str(models), "--html", str(file)], check=True)
    with visiting(chromium, file.as_uri()) as visit:
        for view in ("#/", "#/plan"):
            visit.open(view)
            notice = visit.page.locator("main .notice.failure")
            assert notice.inner_text().startswith(PROBLEM)
            assert notice.locator("a").count() == 0
        assert visit.said == []
