"""Live: rollouts on their way, from the lines that their spans leave in a spool.

Memory holds where lines stand, the spool holds the lines. There are two ways in, and one way out:

    RolloutBuffer     what this process records: it sees spans start, so it counts them. Gathering asks it.
    ArrivingRollouts  what others record: their spans come in any order, late, or twice. NewTrajectories, which reads a
                      spool that other processes write to, asks it.
    assemble          lines -> trajectories, by the reader of dumps: live and dump give the same

A rollout has ended when its own span has, and all the spans that this counted. Where nobody counted, or where some
never come, it has ended when it was quiet for a grace. What comes later gives its trajectory again, as a new revision.
"""

from typing import TYPE_CHECKING

from art_otel.lazy_names import lazy_names

if TYPE_CHECKING:
    from art_otel.live.arriving_rollouts import ArrivingRollouts, EndedRollout
    from art_otel.live.assembly import Line, assemble, read_records
    from art_otel.live.buffer import MAX_AGE, MAX_OPEN, RolloutBuffer
    from art_otel.live.new_trajectories import NewTrajectories
    from art_otel.live.open_rollout import SpanCounts

__all__ = [
    "MAX_AGE",
    "MAX_OPEN",
    "ArrivingRollouts",
    "EndedRollout",
    "Line",
    "NewTrajectories",
    "RolloutBuffer",
    "SpanCounts",
    "assemble",
    "read_records",
]

# Who records, who asks for what arrives, and who converts need different halves.
__getattr__ = lazy_names(
    __name__,
    {
        "arriving_rollouts": ("ArrivingRollouts", "EndedRollout"),
        "assembly": ("Line", "assemble", "read_records"),
        "buffer": ("MAX_AGE", "MAX_OPEN", "RolloutBuffer"),
        "new_trajectories": ("NewTrajectories",),
        "open_rollout": ("SpanCounts",),
    },
)
