"""What tests of several folders ask for; a folder or module with a server of its own has a fixture of the same name."""

import pytest

from tests.tracing.server import ModelServer


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A model server that is a process of its own, one for all tests."""
    with ModelServer(tmp_path_factory.mktemp("server")) as running:
        yield running
