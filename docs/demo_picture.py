"""Write docs/assets/demo.svg from what the demo prints: `uv run python docs/demo_picture.py`."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

PICTURE: Final = Path(__file__).parent / "assets" / "demo.svg"
WIDTH: Final = 100
LEFT_OUT: Final = slice(7, 28)
"""Steps of which the picture shows none, among the lines that the demo prints."""

SVG: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="art-otel demo">
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  line-height: {line_height}px; }}
.{unique_id}-title {{ font: bold 16px system-ui, sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""Rich's own, without fonts from the network."""


def demo_output() -> str:
    """What the demo prints on a terminal."""
    command = [sys.executable, "-m", "art_otel", "demo", "--out", "demo"]
    environment = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": str(WIDTH)}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(  # noqa: S603 # this very Python
            command, cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.replace(f"{Path(folder).resolve()}/", "")


def picture(output: str) -> str:
    """The output as SVG."""
    lines = output.splitlines()
    lines[LEFT_OUT] = ["   …"]
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        console.print("$ pip install uv && uv run art-otel demo\n", style="bold")
        for line in lines:
            console.print(Text.from_ansi(line))
        svg = console.export_svg(title="art-otel demo", code_format=SVG, unique_id="demo")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(demo_output()), encoding="utf-8")
