"""Calls from child processes, however they are made: `python processes.py fork|spawn|forkserver|pool|executor|os_fork`.

Prints one JSON line: the response ids of the parent's and the children's calls.
"""

import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor

from openai import OpenAI

CHILDREN = 3
CALLS = 2


def ask(text: str) -> str:
    """One call; its response id."""
    with OpenAI() as client:
        return client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}]).id


def work(number: int) -> list[str]:
    """What one child does."""
    return [ask(f"child {number} call {call}") for call in range(CALLS)]


def work_into(number: int, results) -> None:
    """The same, handed back through a queue."""
    results.put(work(number))


def by_process(method: str) -> list[list[str]]:
    """multiprocessing.Process."""
    context = multiprocessing.get_context(method)
    results = context.SimpleQueue()
    children = [context.Process(target=work_into, args=(number, results)) for number in range(CHILDREN)]
    for child in children:
        child.start()
    found = [results.get() for _ in children]
    for child in children:
        child.join()
    return found


def by_os_fork() -> list[list[str]]:
    """Children that leave by os._exit, which runs no clean-up at all."""
    found = []
    for number in range(CHILDREN):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writing, json.dumps(work(number)).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        found.append(json.loads(os.read(reading, 65536)))
    return found


def main() -> None:
    """Calls here, in the children, and here again."""
    how = sys.argv[1]
    ids = [ask("parent before")]
    if how == "pool":
        with multiprocessing.get_context("fork").Pool(2) as pool:
            found = pool.map(work, range(CHILDREN))
    elif how == "executor":
        with ProcessPoolExecutor(2) as executor:
            found = list(executor.map(work, range(CHILDREN)))
    else:
        found = by_os_fork() if how == "os_fork" else by_process(how)
    ids += [response_id for child in found for response_id in child]
    print(json.dumps([*ids, ask("parent after")]))


if __name__ == "__main__":
    main()
