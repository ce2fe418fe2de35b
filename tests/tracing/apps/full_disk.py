"""Rollouts on a disk that fills up and is freed again: `python full_disk.py KEEP`, ART_OTEL_DIR being a small disk.

Prints one JSON line: the span ids made while there was space, while there was none, and after some was freed. The spool
is copied to KEEP at the end.
"""

import json
import shutil
import sys
import time

from opentelemetry import trace

import art_otel

CALLS = 5
CONTENT = "x" * 4_000
FILLER_BYTES = 300_000


def one_rollout() -> list[str]:
    """The span ids of a rollout of calls."""
    ids: list[str] = []
    named = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": CONTENT}
    with art_otel.rollout(name="x") as running:
        ids.append(f"{running.span.get_span_context().span_id:016x}")
        for _ in range(CALLS):
            with trace.get_tracer("disk").start_as_current_span("chat m", attributes=named) as span:
                ids.append(f"{span.get_span_context().span_id:016x}")
    return ids


def main() -> None:
    """Space, none, and space again."""
    tracing = art_otel.configure()
    folder = tracing.settings.dir
    folder.mkdir(parents=True, exist_ok=True)
    told = {"before": one_rollout()}
    filler = folder / "filler"
    with filler.open("wb") as file:
        file.write(bytes(FILLER_BYTES))
    told["full"] = [span_id for _ in range(20) for span_id in one_rollout()]
    filler.unlink()
    time.sleep(1.1)  # how often a disk that refuses is asked
    told["after"] = one_rollout() + one_rollout()
    told["flushed"] = tracing.flush()
    tracing.shutdown()
    shutil.copytree(folder / "spool", sys.argv[1])
    print(json.dumps(told))


if __name__ == "__main__":
    main()
