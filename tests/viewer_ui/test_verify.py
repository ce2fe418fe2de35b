"""The page of a verification: its verdict, figures and diagnoses, and one line where there is none."""

import subprocess
import sys

import pytest

from art_otel import write_trajectories
from art_otel.verification import Diagnosis, Figures, Verification
from art_otel.verification.decoded_text import DecodedDifference, TextComparison
from art_otel.verification.saved import describe, save
from tests.viewer_ui.conftest import running, visiting
from tests.viewer_ui.dataset import HOSTILE, member
from tests.viewer_ui.test_pages import serious

pytestmark = pytest.mark.browser

RIGHT = Figures(tokens=216, mean=3.9e-7, worst=1.9e-6, kl_k1=8.1e-8, kl_k3=1.5e-13, outside=0.0)
OFF = Figures(tokens=198, mean=1.4e-2, worst=4.4e-2, kl_k1=-1.5e-3, kl_k3=1.4e-4, outside=0.0123)
FOUND = Verification(
    rollouts=200,
    total_rollouts=10_000,
    completions=414,
    limit=2e-4,
    all=OFF,
    by_version={"1": RIGHT, HOSTILE: OFF},
    by_position={"0 to 63": OFF},
    by_kind={"later": OFF},
    diagnoses=(
        Diagnosis(
            name="other weights",
            where=f"version {HOSTILE}",
            tokens=198,
            share=0.478,
            mean=1.4e-2,
            meaning="these tokens were sampled from other weights than this model's",
            advice="give --model the checkpoint of this version",
        ),
    ),
    skipped={"no logprobs": 3},
    texts=TextComparison(
        completions=414,
        equal=413,
        differences={"content": 1},
        examples=(
            DecodedDifference(rollout_id="member-1", turn=0, field="content", recorded=HOSTILE, decoded=HOSTILE),
        ),
        meaning="some completions have the ids of another call, or their recorder changes texts",
    ),
)


@pytest.fixture(scope="module")
def verified(tmp_path_factory):
    """A dataset with a verification beside it, and one without."""
    folder = tmp_path_factory.mktemp("verified")
    for name in ("data", "plain"):
        write_trajectories([member(number, 1.0) for number in range(2)], folder / name)
    data = str(folder / "data")
    save(describe(FOUND, dataset=data, model="models/smollm2", dtype="float32", policy_version=None), data)
    return folder


@pytest.mark.parametrize("width", [1280, 400])
def test_it_is_whole_and_accessible(chromium, verified, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    size = {"width": width, "height": 800}
    with (
        running(verified / "data", verified / "plain") as address,
        visiting(chromium, address, viewport=size, color_scheme=scheme) as visit,
    ):
        visit.open("#/")
        visit.page.get_by_role("link", name="Verification").click()
        visit.until("document.querySelector('.verified')")
        assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert not serious(axe.run(visit.page))
        text = visit.page.inner_text("main")
        assert "Something is off. Not all recorded logprobs" in text
        assert "computed in float32" in text
        assert "414 completions of 200 of 10,000 rollouts. The limit is a mean of 0.0002 nats." in text
        assert "What to do: give --model the checkpoint of this version." in text
        assert "None yet: art-otel verify DATASET --model FOLDER" in text  # of the second source
        rows = [row.inner_text().split("\t") for row in visit.page.locator(".verified tbody tr").all()]
        assert rows[1] == ["version 1", "216", "3.9e-7", "1.9e-6", "8.1e-8", "1.5e-13", "0.00%"]
        assert [row[0] for row in rows] == ["all", "version 1", rows[2][0], "position 0 to 63", "later"]
        assert visit.page.evaluate("window.hit === undefined && document.images.length === 0")
        assert visit.said == []


def test_a_file_of_everything_has_it_and_one_of_a_part_says_why_not(chromium, verified, tmp_path):
    for selects, says in ([], "Something is off."), (["--rollout", "member-1"], "this file holds a part"):
        file = tmp_path / "shared.html"
        command = [sys.executable, "-m", "art_otel", "view", verified / "data", "--html", file, *selects]
        subprocess.run(command, check=True)
        with visiting(chromium, file.as_uri()) as visit:
            visit.open("#/verify")
            assert says in visit.page.inner_text("main")
            assert visit.said == []
