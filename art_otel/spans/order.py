"""Order: spans after their parents."""

from collections.abc import Iterable, Iterator, Mapping

from art_otel.spans.span import SpanKey


def topological_order(keys: Iterable[SpanKey], parents: Mapping[SpanKey, SpanKey]) -> Iterator[SpanKey]:
    """The keys and everything above them, each once and after its parent. Needs spans without cycles."""
    done: set[SpanKey] = set()
    for key in keys:
        if key in done:
            continue
        at = parents.get(key)
        if at is None or at in done:  # most are in order
            done.add(key)
            yield key
            continue
        path = [key]
        while at is not None and at not in done:
            path.append(at)
            at = parents.get(at)
        done.update(path)
        yield from reversed(path)
