"""Delivery: rewards that name nothing but a response reach the one trace that has it.

Invariant: each goes to one slot, that of the trace or its own. Slots are looked through only if there are such rewards.
"""

from art_otel.engines import plan
from art_otel.engines.engine import Engine
from art_otel.engines.reads import Reads
from art_otel.engines.shards import REWARDS, Shuffle, Shuffled
from art_otel.engines.sizes import Sizes
from art_otel.engines.tasks import DeliverTask, ProbeSummary, ProbeTask, deliver, probe
from art_otel.engines.tasks.probe import write_answers
from art_otel.engines.workspace import Workspace


def deliver_by_response(workspace: Workspace, engine: Engine, sizes: Sizes, reads: Reads, links: Shuffle) -> Shuffle:
    """Probe the slots that were read for the responses, and send the rewards there."""
    waiting = (reads.shuffle | links).files_with((REWARDS,))
    if not waiting:
        return Shuffle()
    # Those that could have gone to a rollout were listed by nobody.
    unlisted = links if reads.response_ids is not None else reads.shuffle | links
    catalog, reward_catalog = (one.write_catalog(workspace.folder) for one in (reads.shuffle, unlisted))
    probes = [
        ProbeTask(
            slots=partition.slots,
            files=catalog,
            response_ids=tuple(sorted(reads.response_ids or ())),
            reward_files=reward_catalog,
        )
        for partition in plan.partitions(reads.shuffle.sizes, sizes)
    ]
    answers = write_answers(workspace.summaries(engine, probe, probes, ProbeSummary), workspace.folder)
    tasks = [
        DeliverTask(files=(file,), answers=answers, slots=sizes.slots, scratch=workspace.folder) for file in waiting
    ]
    return Shuffle(workspace.summaries(engine, deliver, tasks, Shuffled))
