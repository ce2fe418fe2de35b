"""The plan of a dataset of several models: a model is chosen by a click, and every option by the form."""

import subprocess
import sys

import pytest

from tests.viewer.mixed import SAMPLED, mixed
from tests.viewer_ui.conftest import running, visiting
from tests.viewer_ui.test_pages import serious

pytestmark = pytest.mark.browser

PROBLEM = "A model has to be chosen first."
HAS_PART = "[...document.querySelectorAll('.part bdi')].some(name => name.textContent === argument)"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return mixed(tmp_path_factory.mktemp("models") / "mixed")


@pytest.fixture
def visit(chromium, models):
    with running(models) as address, visiting(chromium, address) as one:
        yield one
        assert one.said == []


def reasons(visit) -> dict[str, str]:
    """The parts of the bar, each with what helps."""
    return {
        part.locator("bdi").first.text_content(): part.locator("p").nth(1).text_content()
        for part in visit.page.locator(".trains .part:has(p + p + p)").all()
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


def test_a_model_is_chosen_and_each_reason_says_what_helps(visit):
    visit.open("#/?options=open")
    notice = visit.page.locator("main .notice.failure")
    assert notice.inner_text().startswith(f"{PROBLEM} {SAMPLED} rollouts with answers of several models")
    assert reasons(visit)["several models"].startswith("What helps: Name the policy's model in the models option")
    notice.get_by_role("link", name="policy", exact=True).click()
    visit.until("location.hash === '#/?plan=models%3Dpolicy' && !document.querySelector('main .notice.failure')")
    visit.page.get_by_text("Other options").click()
    visit.page.wait_for_selector("#option-models")
    assert visit.page.locator("#option-models").input_value() == "policy"
    found = reasons(visit)
    assert {"another model", "marked untrained", "aborted", "ids doubtful"} <= found.keys()
    assert all(found.values())
    choose(visit, models="!judge*", agents="!critic", length="mask")
    visit.until("location.hash.includes('models%3D%2521judge*%26agents%3D%2521critic%26length%3Dmask')")
    visit.until(HAS_PART, "another agent")
    found = reasons(visit)
    assert {"another agent", "another model", "cut at max_tokens", "marked untrained"} <= found.keys()
    assert all(found.values())
    part = visit.page.locator(".part", has_text="another agent")
    part.locator("summary").click()
    part.get_by_role("link").click()
    visit.settle()
    assert visit.page.locator(".rows-body [role=row]").count() == SAMPLED
    visit.open("#/?options=open&plan=length%3Ddrop%26models%3D*")
    visit.until(HAS_PART, "cut at max_tokens")
    assert "cut at max_tokens" in reasons(visit)


@pytest.mark.parametrize("width", [1280, 400])
def test_pages_are_whole_and_accessible_before_a_model_is_chosen(chromium, models, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    size = {"width": width, "height": 800}
    with running(models) as address, visiting(chromium, address, viewport=size, color_scheme=scheme) as visit:
        visit.open("#/t?q=several-0")
        rollout = visit.page.locator(".rows-body a").first.get_attribute("href")
        alone = rollout.partition("?")[0]
        for view in ("#/", "#/?options=open", "#/t?sort=advantage", rollout, f"{alone}?c=mask"):
            visit.open(view)
            assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
            assert not serious(axe.run(visit.page)), view
        visit.open("#/")
        assert PROBLEM in visit.page.inner_text("main")
        assert visit.said == []


def said_of(visit, rollout_id: str, turn: int = 0) -> str:
    """What the page says of why a turn is trained or not."""
    visit.open(f"#/t?q={rollout_id}")
    rollout = visit.page.locator(".rows-body a").first.get_attribute("href")
    visit.open(f"{rollout.partition('?')[0]}?t={turn}&why=1")
    visit.page.wait_for_selector(".why-steps li")
    return visit.page.locator(".why").inner_text()


@pytest.mark.parametrize(
    ("rollout_id", "turn", "note"),
    [
        ("several-0", 3, "marked untrained: title"),
        ("doubtful%20text", 0, "Text: content uncertain"),
        ("doubtful%20ids", 0, "Text: may be trained"),
        ("aborted", 0, "aborted"),
    ],
)
def test_a_turn_says_what_its_call_is_for_and_the_verdict_on_its_text(visit, rollout_id, turn, note):
    said = said_of(visit, rollout_id, turn)
    assert note in said
    assert ("Text:" in said) == note.startswith("Text:")
    alone = said_of(visit, "alone")
    assert "marked" not in alone
    assert "Text:" not in alone


def test_a_shared_file_says_it_and_offers_no_other_plan(chromium, models, tmp_path):
    file = tmp_path / "shared.html"
    subprocess.run([sys.executable, "-m", "art_otel", "view", str(models), "--html", str(file)], check=True)
    with visiting(chromium, file.as_uri()) as visit:
        for view in ("#/", "#/t"):
            visit.open(view)
            notice = visit.page.locator("main .notice.failure")
            assert notice.inner_text().startswith(PROBLEM)
            assert notice.locator("a").count() == 0
        assert visit.said == []
