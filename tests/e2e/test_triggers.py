"""Admission passes run when something changes and every few seconds; each of the two alone is enough."""

from pathlib import Path

import pytest

from tests.e2e.cluster import cluster
from tests.e2e.documents import node, script

DOOR = {"mutexes": [{"key": "door"}]}


@pytest.mark.parametrize("option", ["--no-sweep", "--no-events"])
def test_a_server_that_only_sweeps_and_one_that_never_does_finish_the_same_graph(
    option: str, database_url: str, tmp_path: Path
) -> None:
    with cluster(tmp_path, database_url, options=[option]) as one:
        one.client.set_pool("default", capacity=1)
        one.bot("b")
        graph = one.submit(
            {
                "first": script("true", task=DOOR),
                "second": script("true", task=DOOR),
                "inside": node({"graph": {"tasks": {"in": script("true", task=DOOR)}}}, "first"),
                "last": script("true", "second", "inside", task={"not_before": "1s"}),
            }
        )
        graph.finished()
