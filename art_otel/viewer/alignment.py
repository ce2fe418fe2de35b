"""Alignment: the messages of several rollouts side by side, by what they say and not by their number.

Invariant: each message of the root agent stands in one line, in its order; equal ones stand in one line where the order
allows it. Between two lines that are equal, others stand side by side as they come.

    a    read the file   edit it    run the tests   done
    b    read the file   look more  edit it         give up

    line 0   read the file   read the file    same
    line 1                   look more
    line 2   edit it         edit it          same
    line 3   run the tests   give up
    line 4   done
"""

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from math import isfinite
from statistics import fmean
from typing import Any, Final, NamedTuple

from art_otel.trajectories import Trajectory
from art_otel.trajectories.trees import MessageNode, path_to
from art_otel.viewer.conversation import message_text
from art_otel.viewer.tree import find_threads

_LONGEST: Final = 2_000
"""Characters of a message that are shown."""


class SaidMessage(NamedTuple):
    """A message, with the turn that sampled it; `answer` is its text without reasoning, None where it has none."""

    role: str
    text: str
    turn: int | None
    answer: str | None = None


def messages_of(trajectory: Trajectory) -> list[SaidMessage]:
    """The messages of the root agent in the order in which they came, over compactions and retries.

    The root agent is who asked first of what is known; a thread in which nothing is the policy's is nobody's where
    there is another.
    """
    threads, calls = find_threads(trajectory), trajectory.calls
    own = [thread for thread in threads if any(calls[call].marked_untrained is None for call in thread.calls)]
    if not threads:
        return []
    is_known = [any(calls[call].prompt_node is not None for call in thread.calls) for thread in own or threads]
    of_agent = set((own or threads)[is_known.index(True) if True in is_known else 0].calls)
    nodes: dict[int, MessageNode] = {}
    for call in sorted(of_agent):
        sampled = [turn.message_node for turn in trajectory.turns if turn.call == call]
        for node in (*path_to(calls[call].prompt_node), *filter(None, sampled)):
            nodes.setdefault(id(node.first), node.first)
    added = [
        SaidMessage(one.message.role, message_text(one.message), None)
        for one in trajectory.added_messages
        if trajectory.turns[one.turn].call in of_agent
    ]
    said = [
        SaidMessage(one.message.role, message_text(one.message), one.turn, one.message.content)
        for one in nodes.values()
    ]
    return said + added


def align(rollouts: Sequence[Sequence[SaidMessage]]) -> list[dict[str, Any]]:
    """Lines of one cell for each rollout, None where it says nothing there."""
    lines: list[list[SaidMessage | None]] = []
    for number, messages in enumerate(rollouts):
        # What was said before at a line stands for the line, whoever said it.
        keys = {(one.role, one.text): place for place, line in reversed([*enumerate(lines)]) for one in line if one}
        new = [keys.get((one.role, one.text), -1 - at) for at, one in enumerate(messages)]
        merged: list[list[SaidMessage | None]] = []
        matcher = SequenceMatcher(None, range(len(lines)), new, autojunk=False)
        for _, start, end, first, last in matcher.get_opcodes():
            for line, message in zip_longest(lines[start:end], messages[first:last]):
                if line is not None and message is not None and _roles(line) != {message.role}:
                    merged += [[*line, None], [*[None] * number, message]]
                else:
                    merged.append([*(line or [None] * number), message])
        lines = merged
    return [_show(line) for line in lines]


def _roles(line: Sequence[SaidMessage | None]) -> set[str]:
    return {one.role for one in line if one is not None}


def _show(line: Sequence[SaidMessage | None]) -> dict[str, Any]:
    texts = {None if one is None else (one.role, one.text) for one in line}
    return {
        "role": min(_roles(line)),
        "same": len(texts) == 1,
        "cells": [one and {"text": one.text[:_LONGEST], "turn": one.turn} for one in line],
    }


def parting_line(lines: Sequence[dict[str, Any]], rewards: Sequence[float]) -> int | None:
    """The first line in which no rollout above the mean reward says what one below says; None where there is none.

    Decisions are what was sampled: what tools and people say follows from them.
    """
    known = [reward for reward in rewards if isfinite(reward)]
    mean = fmean(known) if known else 0.0
    for number, line in enumerate(lines):
        if line["role"] != "assistant" or line["same"]:
            continue
        said = [(cell["text"], reward) for cell, reward in zip(line["cells"], rewards, strict=True) if cell]
        good, bad = {text for text, reward in said if reward > mean}, {text for text, reward in said if reward < mean}
        # Where everybody says something of their own, nothing parts them.
        if good and bad and not good & bad and len(good) + len(bad) < max(len(said), 3):
            return number
    return None
