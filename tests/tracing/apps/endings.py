"""A program that makes calls and then ends: `python endings.py return|exit|os_exit|raise|abort|wait`.

Prints a response id a line, as soon as its call returned. `wait` goes on waiting, to be ended by a signal.
"""

import os
import sys
import time

from openai import OpenAI


def main() -> None:
    """Three calls, then the end."""
    client = OpenAI()
    for number in range(3):
        reply = client.chat.completions.create(model="m", messages=[{"role": "user", "content": f"call {number}"}])
        print(reply.id, flush=True)
    how = sys.argv[1]
    if how == "exit":
        sys.exit(3)
    elif how == "os_exit":
        os._exit(4)
    elif how == "raise":
        raise RuntimeError("as it was asked to")
    elif how == "abort":
        os.abort()
    elif how == "wait":
        print("waiting", flush=True)
        time.sleep(60)


if __name__ == "__main__":
    main()
