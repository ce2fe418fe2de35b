"""Split streams: a request and the answer of its stream, recorded on two spans beside each other.

Logfire ends the span of the request when the stream begins, and writes the answer to a span of its own at the stream's
end, under the same parent. Invariant: an answer belongs to the latest request that began before it, asks the same and
has no answer yet; of one instrumentor, by another of its integrations.
"""

from functools import partial

from art_otel.conventions import is_request_only
from art_otel.trajectories.calls.duplicates.cluster import Clusters
from art_otel.trajectories.calls.duplicates.nested import is_same_request
from art_otel.trajectories.calls.duplicates.overlapping import LatestOpen
from art_otel.trajectories.calls.duplicates.recording import Recording


def join_split_streams(clusters: Clusters) -> None:
    """Join each request without an answer with the span that has the answer of its stream."""
    requests = LatestOpen()
    for recording in sorted(clusters.recordings, key=lambda one: one.start):
        beside = recording.span.scope.name, recording.span.parent_span_id
        if is_request_only(recording.span, recording.call):
            requests.add(recording, beside)
        else:
            requests.take(recording, beside, partial(_join_answer, clusters, recording))


def _join_answer(clusters: Clusters, answer: Recording, request: Recording) -> bool:
    return _is_answered_by(request, answer) and clusters.join(clusters.of(request), clusters.of(answer))


def _is_answered_by(request: Recording, answer: Recording) -> bool:
    is_other = request.recorder != answer.recorder
    return is_other and answer.call.choices is not None and is_same_request(request.call, answer.call)
