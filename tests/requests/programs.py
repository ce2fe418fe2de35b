"""Programs of users: each runs in a process and a folder of its own, with the real openai client and nothing set up."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

ART = '''
"""What stands where the request says `import art`; the rest of a program is as its author wrote it."""

from dataclasses import dataclass

from art_otel import gather_trajectory, get_current_trajectory, rollout

__all__ = ["Model", "gather_trajectory", "get_current_trajectory", "rollout"]


@dataclass
class Model:
    name: str
'''

SETTING = """
import asyncio
import os
from dataclasses import dataclass

from openai import AsyncOpenAI

import art
from art import gather_trajectory


@dataclass
class Scenario:
    text: str


client = AsyncOpenAI(base_url=os.environ["MODEL_URL"], api_key="none")
model, scenario = art.Model("m"), Scenario("the river")
"""

REQUEST = """
@art.rollout
async def get_summary(model: art.Model, scenario: Scenario) -> str:
    completion = await client.chat.completions.create(
        model=model.name,
        messages=[
            {
                "role": "system",
                "content": f"Summarize: {scenario.text}"
            },
        ]
    )

    return completion.choices[0].message.content
"""
"""The request's own example."""


def run(folder: Path, url: str, *parts: str, **variables: str) -> list:
    """Run a program of these parts in the folder and return what it printed, a JSON value a line."""
    (folder / "art.py").write_text(ART, encoding="utf-8")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("ART_OTEL_", "OTEL_", "COV_"))}
    environ |= {"PYTHONPATH": str(ROOT), "MODEL_URL": url, **variables}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(parts)],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
