"""TokenHistories: the forest of turns, token for token as the policy saw and sampled it.

Invariant: what stands before a completion is what the server saw (`prompt_token_ids`). Over the histories, known and
unknown, each completion that is not `untrained` is trained exactly once: in the first known history that
holds it, or, without ids, in the first unknown one.

Which turn continues which is told by the ids, where messages say otherwise too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from art_otel.trajectories.history import History, histories
from art_otel.trajectories.token_drift import Drift, MessageDrift, find_departures, find_drifts, messages_differ
from art_otel.trajectories.token_history import TokenHistory, token_history
from art_otel.trajectories.token_lineage import token_lineage
from art_otel.trajectories.trajectory import Trajectory


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenHistories:
    """The histories of a trajectory: `known` as tokens, `unknown` as messages where a turn on the path lacks ids.

    Turns with ids are trained in known histories and are context in unknown ones. `drifts` tells where messages
    continue a turn and the ids do not, `message_drifts` where ids do and the messages do not, one entry a call each.
    `unconfirmed` would be message drifts if the messages differed, but they were not recorded, or not read.
    """

    known: tuple[TokenHistory, ...]
    unknown: tuple[History, ...]
    drifts: tuple[Drift, ...]
    message_drifts: tuple[MessageDrift, ...] = ()
    unconfirmed: tuple[MessageDrift, ...] = ()


def token_histories(trajectory: Trajectory) -> TokenHistories:
    """Every path through turns with ids as tokens, in the order of the leaves; the other paths as messages.

    Needs the turns only, so a trajectory read without prompts will do. Linear in the tokens of the histories: a context
    that several share is written out in each.
    """
    turns = trajectory.turns
    lineage = token_lineage(turns)
    trained: set[int] = set()
    known: list[TokenHistory] = []
    for leaf in lineage.leaves():
        path = lineage.path_to(leaf)
        learnt = {turn for turn in path if turn not in trained and turns[turn].untrained is None}
        known.append(token_history(turns, path, lineage.contexts, learnt))
        trained.update(path)
    departures = [(messages_differ(turns, departure), departure) for departure in find_departures(turns, lineage)]
    return TokenHistories(
        known=tuple(known),
        unknown=tuple(_unknown(trajectory, lineage.known)),
        drifts=tuple(find_drifts(turns, lineage)),
        message_drifts=tuple(departure for differ, departure in departures if differ),
        unconfirmed=tuple(departure for differ, departure in departures if differ is None),
    )


def _unknown(trajectory: Trajectory, known: Sequence[bool]) -> Iterator[History]:
    """The histories that hold a turn without ids, with the turns that have them as context."""
    if all(known):
        return
    for history in histories(trajectory):
        if all(known[turn] for turn in history.turns):
            continue
        if history.messages is None:
            yield history
        else:
            messages = (
                replace(entry, trained=entry.trained and not (entry.turn is not None and known[entry.turn]))
                for entry in history.messages
            )
            yield replace(history, messages=tuple(messages))
