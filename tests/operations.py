"""How much work a function does, told without a clock."""

import sys


def operations(function, *arguments) -> int:
    """How many Python and C functions are called."""
    count = 0

    def counted(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return count
