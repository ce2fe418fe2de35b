"""A real vLLM, one for all tests."""

import pytest

from tests.model_servers.servers import vllm_server


@pytest.fixture(scope="session")
def vllm(tmp_path_factory):
    with vllm_server(tmp_path_factory.mktemp("vllm") / "vllm.log") as running:
        yield running
