"""A real vLLM and a real llama.cpp, one for all tests."""

import pytest

from tests.model_servers.llama import llama_server
from tests.model_servers.servers import vllm_server


@pytest.fixture(scope="session")
def vllm(tmp_path_factory):
    with vllm_server(tmp_path_factory.mktemp("vllm") / "vllm.log") as running:
        yield running


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    with llama_server(tmp_path_factory.mktemp("llama") / "llama.log") as running:
        yield running
