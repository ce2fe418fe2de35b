"""Write docs/assets/tutorial.svg, the curves of the tutorial: `python docs/tutorial_picture.py HISTORY…`.

Each HISTORY is the `history.jsonl` of a run, `.art/tutorial/models/smollm2/history.jsonl`; the first is drawn thick.
"""

import json
import sys
from pathlib import Path
from typing import Final

PICTURE: Final = Path(__file__).parent / "assets" / "tutorial.svg"
WIDTH, HEIGHT, LEFT, TOP = 560, 220, 48, 16
"""Of the field that the curves are in, and its place, in pixels."""

STYLE: Final = """\
text { font: 13px system-ui, sans-serif; fill: #57606a; }
.grid { stroke: #57606a; stroke-opacity: .25; }
.curve { fill: none; stroke: #1a7f64; stroke-width: 1.5; stroke-opacity: .5; stroke-linejoin: round; }
.first { stroke-width: 3; stroke-opacity: 1; }
@media (prefers-color-scheme: dark) {
  text { fill: #9da7b3; }
  .grid { stroke: #9da7b3; }
  .curve { stroke: #4cc38a; }
}"""


def rewards(history: Path) -> list[float]:
    """The mean reward of each step of a run."""
    rows = (json.loads(line) for line in history.read_text(encoding="utf-8").splitlines())
    return [row["train/reward"] for row in rows]


def picture(runs: list[list[float]]) -> str:
    """Steps to the right, rewards from 0 to 1 upwards."""
    steps = max(map(len, runs)) - 1

    def place(step: float, reward: float) -> str:
        return f"{LEFT + WIDTH * step / steps:.1f},{TOP + HEIGHT * (1 - reward):.1f}"

    drawn = [
        f'<text x="{LEFT - 8}" y="{TOP + HEIGHT * (1 - reward) + 4:.0f}" text-anchor="end">{reward}</text>'
        f'<polyline class="grid" points="{place(0, reward)} {place(steps, reward)}"/>'
        for reward in (0, 0.25, 0.5, 0.75, 1)
    ]
    drawn += [
        f'<text x="{LEFT + WIDTH * step / steps:.0f}" y="{TOP + HEIGHT + 20}" text-anchor="middle">{step}</text>'
        for step in range(0, steps + 1, 5)
    ]
    for number, run in reversed(list(enumerate(runs))):
        points = " ".join(place(step, reward) for step, reward in enumerate(run))
        drawn.append(f'<polyline class="curve{"" if number else " first"}" points="{points}"/>')
    size = f"0 0 {LEFT + WIDTH + 16} {TOP + HEIGHT + 48}"
    under = f'<text x="{LEFT + WIDTH / 2:.0f}" y="{TOP + HEIGHT + 40}" text-anchor="middle">step</text>'
    about = 'role="img" aria-label="The mean reward of each step"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" {about}>\n<style>\n{STYLE}\n</style>'
    return "\n".join([head, *drawn, under, "</svg>\n"])


if __name__ == "__main__":
    PICTURE.write_text(picture([rewards(Path(each)) for each in sys.argv[1:]]), encoding="utf-8")
