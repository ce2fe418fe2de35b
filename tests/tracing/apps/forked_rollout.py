"""A rollout that forks: children make calls in it and leave by os._exit, sys.exit or an error, which unwinds its code.

Prints one JSON line: the response ids in the order the parent learnt of them.
"""

import json
import os
import sys

from openai import OpenAI

import art_otel


def ask(text: str) -> str:
    """One call; its response id."""
    with OpenAI() as client:
        return client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}]).id


def child(how: str, tell: int) -> None:
    """What a child does."""
    os.write(tell, ask(f"child that leaves by {how}").encode())
    if how == "os_exit":
        os._exit(0)
    if how == "exit":
        sys.exit(0)
    raise RuntimeError("the child fails")


def main() -> None:
    """Three children inside one rollout."""
    with art_otel.rollout(name="forked"):
        ids = [ask("before")]
        for how in ("os_exit", "exit", "raise"):
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                child(how, writing)
            os.waitpid(pid, 0)
            ids.append(os.read(reading, 100).decode())
        ids.append(ask("after"))
    print(json.dumps(ids), flush=True)


if __name__ == "__main__":
    main()
