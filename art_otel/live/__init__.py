"""Live: rollouts that still run, and their trajectories from the lines that their spans left in a spool.

The spool holds the lines; memory holds only where each line stands. There are two ways in, and one way out:

    RolloutBuffer     rollouts of this process. It sees spans start and end, so it counts them. Gathering reads it.
    ArrivingRollouts  rollouts of other processes. Their spans come in any order, late, or twice. NewTrajectories (a
                      spool's folder) and the receiver read it.
    assemble          lines -> trajectories, by the reader of dumps, so live and dump give the same

`endings` says when a rollout has ended, for all of them.
"""

from art_otel.lazy_names import defer_imports

if not defer_imports(__name__):
    from art_otel.live.arriving_rollouts import ArrivingRollouts as ArrivingRollouts
    from art_otel.live.arriving_rollouts import BelongsTo as BelongsTo
    from art_otel.live.arriving_rollouts import EndedRollout as EndedRollout
    from art_otel.live.arriving_rollouts import GivenSpans as GivenSpans
    from art_otel.live.arriving_rollouts import Together as Together
    from art_otel.live.assembly import Line as Line
    from art_otel.live.assembly import assemble as assemble
    from art_otel.live.assembly import read_records as read_records
    from art_otel.live.buffer import RolloutBuffer as RolloutBuffer
    from art_otel.live.endings import RolloutCounts as RolloutCounts
    from art_otel.live.new_trajectories import NewTrajectories as NewTrajectories
