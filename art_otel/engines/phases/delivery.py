"""Delivery: rewards that name nothing but a response reach the one trace that has it.

Invariant: each goes to one slot, that of the trace or its own. Slots are looked through only if there are such rewards.
"""

from typing import NamedTuple

from art_otel.engines.continuation import Continuation
from art_otel.engines.engine import Engine
from art_otel.engines.phases.linking import Linked
from art_otel.engines.phases.reads import Reads
from art_otel.engines.planning import plan
from art_otel.engines.planning.sizes import Sizes
from art_otel.engines.shards import REWARDS, Shuffle
from art_otel.engines.tasks import Delivered, DeliverTask, ProbeSummary, ProbeTask, deliver, probe
from art_otel.engines.tasks.probe import write_answers
from art_otel.engines.workspace import Workspace


class Delivery(NamedTuple):
    """Rewards in the slots of their traces, and the slots where that is news."""

    shuffle: Shuffle
    touched: frozenset[int]


def deliver_by_response(
    workspace: Workspace,
    engine: Engine,
    sizes: Sizes,
    reads: Reads,
    linked: Linked,
    continued: Continuation | None = None,
) -> Delivery:
    """Probe the slots for the responses, and send the rewards there."""
    kept = Shuffle() if continued is None else continued.records
    again = (kept | linked.again).files_with((REWARDS,))
    waiting = (reads.shuffle | linked.shuffle).files_with((REWARDS,))
    if not waiting and not again:
        return Delivery(Shuffle(), frozenset())
    listed = None if again else reads.response_ids
    # Those that could have gone to a rollout were listed by nobody.
    unlisted = linked.shuffle if listed is not None else reads.shuffle | kept | linked.shuffle | linked.again
    reward_catalog = unlisted.write_catalog(workspace.folder)

    def probes(shuffle: Shuffle) -> list[ProbeTask]:
        catalog = shuffle.write_catalog(workspace.folder)
        return [
            ProbeTask(
                slots=partition.slots,
                files=catalog,
                response_ids=tuple(sorted(listed or ())),
                reward_files=reward_catalog,
            )
            for partition in plan.partitions(shuffle.sizes, sizes)
        ]

    earlier, came = (workspace.summaries(engine, probe, probes(one), ProbeSummary) for one in (kept, reads.shuffle))
    answers = write_answers(earlier, came, workspace.folder)
    tasks = [
        DeliverTask(
            files=(file,),
            answers=answers,
            round=None if continued is None else continued.round,
            again=is_again,
            slots=sizes.slots,
            scratch=workspace.folder,
        )
        for files, is_again in ((waiting, False), (again, True))
        for file in files
    ]
    delivered = list(workspace.summaries(engine, deliver, tasks, Delivered))
    touched = frozenset(slot for one in delivered for slot in one.touched)
    return Delivery(Shuffle(one.shuffled for one in delivered), touched)
