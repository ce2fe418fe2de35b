"""Pickling: write the trees of a trajectory as lists, because a path may be longer than Python's stack."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace as replace_fields

from art_otel.trajectories.model import Call, Trajectory, Turn, message_ends, token_ends
from art_otel.trajectories.trees import MESSAGE_ROOT, TOKEN_ROOT, MessageNode, TokenNode, node_at, numbered, position_of

_FlatCall: TypeAlias = tuple[Call, int | None, int | None, list[tuple[Turn, int | None, int | None]] | None]


def flat(
    calls: Sequence[Call],
) -> tuple[list[tuple[MessageNode, int | None, int | None]], list[tuple[TokenNode, int | None]], list[_FlatCall]]:
    """The nodes of both trees and the calls, with positions in place of references to nodes."""
    messages, at_message = numbered(message_ends(calls))
    tokens, at_run = numbered(token_ends(calls))
    flat_calls: list[_FlatCall] = []
    for call in calls:
        choices = (
            None
            if call.choices is None
            else [
                (
                    replace_fields(turn, message_node=None, token_node=None),
                    position_of(turn.message_node, at_message),
                    position_of(turn.token_node, at_run),
                )
                for turn in call.choices
            ]
        )
        bare = replace_fields(call, prompt_node=None, prompt_token_node=None, choices=None)
        ends = position_of(call.prompt_node, at_message), position_of(call.prompt_token_node, at_run)
        flat_calls.append((bare, *ends, choices))
    return (
        [
            (
                replace_fields(node, parent=None, restates=None),
                position_of(node.parent, at_message),
                position_of(node.restates, at_message),
            )
            for node in messages
        ],
        [(replace_fields(node, parent=None), position_of(node.parent, at_run)) for node in tokens],
        flat_calls,
    )


def unpickled(
    fields_of: dict[str, Any],
    flat_messages: list[tuple[MessageNode, int | None, int | None]],
    flat_tokens: list[tuple[TokenNode, int | None]],
    flat_calls: list[_FlatCall],
) -> Trajectory:
    """The inverse of `Trajectory.__reduce__`."""
    messages: list[MessageNode] = []
    for node, parent, restates in flat_messages:
        links = (node_at(position, messages, MESSAGE_ROOT) for position in (parent, restates))
        messages.append(replace_fields(node, **dict(zip(("parent", "restates"), links, strict=True))))
    tokens: list[TokenNode] = []
    for node, parent in flat_tokens:
        tokens.append(replace_fields(node, parent=node_at(parent, tokens, TOKEN_ROOT)))
    calls = [
        replace_fields(
            call,
            prompt_node=node_at(prompt, messages, MESSAGE_ROOT),
            prompt_token_node=node_at(prompt_tokens, tokens, TOKEN_ROOT),
            choices=choices
            and tuple(
                replace_fields(
                    turn,
                    message_node=node_at(message, messages, MESSAGE_ROOT),
                    token_node=node_at(run, tokens, TOKEN_ROOT),
                )
                for turn, message, run in choices
            ),
        )
        for call, prompt, prompt_tokens, choices in flat_calls
    ]
    # The reward is the very object of its origin: see `Trajectory.__post_init__`.
    return Trajectory(**fields_of, reward=fields_of["_reward_origin"].reward, calls=tuple(calls))
