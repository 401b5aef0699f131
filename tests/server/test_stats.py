"""Counts per pool and minute, which a thread writes behind the commits."""

from collections.abc import Iterator

import pytest

from taskyard.core.states import Signal
from tests.server.running_server import RunningServer, graph, task

LAB = {"pool": "lab"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(f"sqlite:///{tmp_path_factory.mktemp('yard')}/yard.db") as made:
        made.hello("b1", "lab")
        yield made


def totals(server: RunningServer, **said: str) -> dict[str, dict[str, int]]:
    """Write what is counted, and add it up."""
    server.engine.stats.write()
    found = server.get("/api/v1/stats", **said)
    return {
        one["pool"]: {
            "submitted": sum(one["submitted"]),
            "started": sum(one["started"]),
            **{state: sum(counts) for state, counts in one["ended"].items() if any(counts)},
        }
        for one in found["pools"]
    }


def test_what_happened_is_counted_for_each_pool(server: RunningServer) -> None:
    server.submit(graph(a=task(dimensions=LAB), b=task(dimensions=LAB), c={**task(dimensions=LAB), "requires": ["b"]}))
    first, second = server.claim()
    server.end(first)
    server.end(second, Signal.FAIL)
    for lease in server.claim():
        server.end(lease)
    server.submit(graph(n={"task": {"payload": {"approval": {"message": "?"}}}}, x=task()))
    counted = totals(server)
    assert counted["lab"]["submitted"] == 3
    assert counted["lab"]["started"] == sum(
        count for state, count in counted["lab"].items() if state in {"successful", "failed"}
    )
    assert counted["default"] == {"submitted": 1, "started": 0}
    assert counted[""]["submitted"] == 1
    # Nothing is counted twice.
    again = totals(server)
    assert (again["lab"], again["default"]) == (counted["lab"], counted["default"])


def test_the_age_of_what_waits_is_told(server: RunningServer) -> None:
    server.submit(graph(waits=task(dimensions={"pool": "lab", "id": "b1", "gpu": "none"})))
    server.submit(graph(a=task(dimensions=LAB)))
    server.engine.stats.write()
    (lab,) = (one for one in server.get("/api/v1/stats?pool=lab")["pools"] if one["pool"] == "lab")
    assert lab["waiting"][-1] >= 1
    assert lab["oldest_ms"][-1] >= 0


def test_steps_are_as_many_as_a_chart_can_show(server: RunningServer) -> None:
    found = server.get("/api/v1/stats?span_ms=604800000")
    assert found["step_ms"] == 28 * 60_000
    assert len(found["at_ms"]) == 360
    assert server.ask("GET", "/api/v1/stats?span_ms=1").status == 400


def test_a_caller_sees_only_the_pools_that_they_may_read(server: RunningServer) -> None:
    server.submit(graph(a=task(dimensions=LAB)))
    assert set(totals(server, token=server.token("pool:lab:read"))) == {"lab"}
    assert totals(server, token=server.token("pool:other:read")) == {}
