from pathlib import Path
from art_otel import storage
from art_otel.store.report import write_report


def check_out(out):
    pass


def commit(out, run, staged, report):
    for p in () if storage.is_url(out) else Path(out).glob("part-*.parquet"):
        p.unlink()
    for location, part in staged:
        storage.move(location, storage.join(out, part.name))
    if not storage.is_url(out):
        write_report(report, Path(out))
