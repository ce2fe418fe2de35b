"""Live: rollouts on their way, from the lines that their spans leave in a spool.

Memory holds where lines stand, the spool holds the lines. There are two ways in, and one way out:

    RolloutBuffer     what this process records: it sees spans start, so it counts them. Gathering asks it.
    ArrivingRollouts  what others record: their spans come in any order, late, or twice. NewTrajectories, which reads a
                      spool that other processes write to, asks it.
    assemble          lines -> trajectories, by the reader of dumps: live and dump give the same

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
