"""Real servers, each one for all tests that ask for it."""

import pytest

from tests.model_servers.llama import llama_server
from tests.model_servers.servers import vllm_server


@pytest.fixture(scope="session")
def vllm(tmp_path_factory):
    with vllm_server(tmp_path_factory.mktemp("vllm") / "vllm.log") as running:
        yield running


@pytest.fixture(scope="session")
def plain_vllm(tmp_path_factory):
    """One that cannot sample from ids, as it is started without `--enable-scale-out`."""
    with vllm_server(tmp_path_factory.mktemp("vllm") / "vllm.log", takes_ids=False) as running:
        yield running


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    with llama_server(tmp_path_factory.mktemp("llama") / "llama.log") as running:
        yield running


@pytest.fixture(scope="session")
def llama_for_agents(tmp_path_factory):
    """One with room for the prompts of agents. Of short answers, some have no token that ends inside a character."""
    options = ("--ctx-size", "65536", "--parallel", "1", "--predict", "6")
    with llama_server(tmp_path_factory.mktemp("llama") / "llama.log", *options) as running:
        yield running
