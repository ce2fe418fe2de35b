"""A server for each test, and each test marked `live`."""

from pathlib import Path

import pytest

from tests.live import environments
from tests.tracing.server import ModelServer


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items) -> None:
    """All that stands here runs in environments of their own."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("live")


@pytest.fixture
def server(tmp_path):
    with ModelServer(tmp_path) as running:
        yield running


@pytest.fixture(params=environments.NAMES)
def instrumentor(request) -> str:
    return request.param
