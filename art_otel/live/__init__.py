"""Live: rollouts on their way, from the lines that their spans leave in a spool.

Memory holds where lines stand, the spool holds the lines. There are two ways in, and one way out:

    RolloutBuffer     what this process records: it sees spans start, so it counts them. Gathering asks it.
    ArrivingRollouts  what others record: their spans come in any order, late, or twice. NewTrajectories, which reads a
                      spool that other processes write to, asks it.
    assemble          lines -> trajectories, by the reader of dumps: live and dump give the same

A rollout has ended when its own span has, and all the spans that this counted. Where nobody counted, or where some
never come, it has ended when it was quiet for a grace. What comes later gives its trajectory again, as a new revision.
"""

from art_otel.lazy_names import defer_imports

if not defer_imports(__name__):
    from art_otel.live.arriving_rollouts import ArrivingRollouts as ArrivingRollouts
    from art_otel.live.arriving_rollouts import EndedRollout as EndedRollout
    from art_otel.live.arriving_rollouts import Together as Together
    from art_otel.live.arriving_spans import BelongsTo as BelongsTo
    from art_otel.live.arriving_spans import GivenSpans as GivenSpans
    from art_otel.live.assembly import Line as Line
    from art_otel.live.assembly import assemble as assemble
    from art_otel.live.assembly import read_records as read_records
    from art_otel.live.buffer import MAX_AGE as MAX_AGE
    from art_otel.live.buffer import MAX_OPEN as MAX_OPEN
    from art_otel.live.buffer import RolloutBuffer as RolloutBuffer
    from art_otel.live.buffer import RolloutSpanCounts as RolloutSpanCounts
    from art_otel.live.new_trajectories import NewTrajectories as NewTrajectories
