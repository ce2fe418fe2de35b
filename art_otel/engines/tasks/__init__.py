"""The tasks of a conversion: read, link, probe, deliver, reroute, assemble, and merge for the next.

Invariant: a task is a plain record, and running it takes nothing but this record and the files it names. It writes
files under fresh names, changes none, and returns a small summary. So it may run in any process of any machine, twice,
or be killed and run again.
"""

from art_otel.engines.tasks.assemble import AssembledPart, AssembleTask, assemble
from art_otel.engines.tasks.link import LinkSummary, LinkTask, link
from art_otel.engines.tasks.merge import Merged, MergeTask, merge
from art_otel.engines.tasks.probe import Delivered, DeliverTask, ProbeSummary, ProbeTask, deliver, probe
from art_otel.engines.tasks.read import ReadSummary, ReadTask, read_split, unread_split
from art_otel.engines.tasks.reroute import RerouteTask, reroute

__all__ = [
    "AssembleTask",
    "AssembledPart",
    "DeliverTask",
    "Delivered",
    "LinkSummary",
    "LinkTask",
    "MergeTask",
    "Merged",
    "ProbeSummary",
    "ProbeTask",
    "ReadSummary",
    "ReadTask",
    "RerouteTask",
    "assemble",
    "deliver",
    "link",
    "merge",
    "probe",
    "read_split",
    "reroute",
    "unread_split",
]
