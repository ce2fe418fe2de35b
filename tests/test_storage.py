"""Locations are where pyarrow has them, and are shown without what is secret."""

import pytest

from art_otel import storage
from art_otel.storage import located


@pytest.mark.parametrize(
    ("url", "path", "shown"),
    [
        ("s3://bucket/users/me@corp.com/out?region=us-east-1", "bucket/users/me@corp.com/out", None),
        ("s3://id:secret@bucket/out/?region=us-east-1", "bucket/out", "s3://bucket/out/"),
        ("abfs://box:secret@name.dfs.core.windows.net/out", "box/out", "abfs://box@name.dfs.core.windows.net/out"),
    ],
)
def test_where_a_url_leads(url, path, shown):
    assert located(url)[1] == path
    assert storage.shown(url) == (shown or url.partition("?")[0])
