"""Graphs are deleted while servers and bots run, and a server that is killed meanwhile does no harm."""

import signal
from contextlib import suppress

import pytest

from taskyard.engine.failpoints import Boundary, Side
from taskyard.sdk import NotFound, Unreachable
from taskyard.store.connection import open_store
from tests.cli.waiting import until
from tests.e2e.cluster import Cluster, Graph
from tests.e2e.documents import script

TASKS = 40


def is_deleted(cluster: Cluster, graph: Graph) -> bool:
    """Tell whether no row of a graph is left."""
    store = open_store(cluster.database)
    try:
        with store.read() as repo:
            id = int(graph.id, 16)
            return (
                repo.graphs.peek([id]) == []
                and not repo.retention.hidden(9)
                and repo.task_list.of_graph(id, -1, 9) == []
            )
    finally:
        store.close()


def test_a_server_that_is_killed_while_it_deletes_a_graph_goes_on_with_it(own_cluster: Cluster) -> None:
    one = own_cluster
    one.bot("main", slots=4)
    chain = {"t0": script("echo printed")} | {
        f"t{number}": script("echo printed", *(f"t{place}" for place in range(number))) for number in range(1, TASKS)
    }
    graph, kept, other = (
        one.submit(chain),
        one.submit({"one": script("echo kept")}),
        one.submit({"one": script("true")}),
    )
    for made in (graph, kept, other):
        made.finished()
    one.kill_server()
    one.serve(f"{Boundary.PURGE}.{Side.AFTER}:exit@1")
    with suppress(Unreachable):  # it may be killed before it has answered
        one.client.delete_graph(graph.id)
    assert one.server_ended() == -signal.SIGKILL
    one.serve()
    with pytest.raises(NotFound):
        graph.view()
    assert not is_deleted(one, graph), "it was killed in the middle"
    one.client.delete_graph(other.id)  # also wakes what deletes
    until(lambda: is_deleted(one, graph) and is_deleted(one, other), "both graphs are deleted")
    assert kept.output("one") == b"kept\n"
    one.submit({"one": script("true")}).finished()
