"""A stand-in for a model server."""

import pytest

from tests.tracing.server import ModelServer


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    with ModelServer(tmp_path_factory.mktemp("server"), "--policy-version", "v7") as running:
        yield running


@pytest.fixture(scope="package")
def address(server) -> str:
    """Where it listens, as `--upstream` has it."""
    return server.url.removesuffix("/v1")
