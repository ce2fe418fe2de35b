import pytest

from tests.tracing.server import ModelServer


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with ModelServer(tmp_path_factory.mktemp("server")) as running:
        yield running
