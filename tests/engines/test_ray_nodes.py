"""A node that Ray loses without grace changes no byte. A process has one Ray at a time, so this is a module."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from art_otel.engines import convert
from tests.engines.ray_cluster import FEW_PHASES, Deadly, connected, contents, conversion, running_cluster, write_linked

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize("phase", FEW_PHASES[-2:])
@pytest.mark.parametrize("replaced", [True, False])
def test_a_node_that_is_lost_changes_nothing(tmp_path, phase, replaced):
    linked = write_linked(tmp_path / "in", 60, 4)
    convert(conversion(linked, tmp_path / "local"))
    with running_cluster(nodes=1 if replaced else 2) as cluster, connected() as engine, ThreadPoolExecutor(1) as thread:
        deadly = Deadly(engine, tmp_path, phase, waits=True)
        converted = thread.submit(convert, conversion(linked, tmp_path / "out"), deadly)
        lost = deadly.node_that_waits()
        next(node for node in cluster.nodes if node.name == lost).remove()
        if replaced:
            cluster.add()
        converted.result()
    assert contents(tmp_path / "out") == contents(tmp_path / "local")
