"""What belongs to which pool: one rule for matching, capacity, rights and visibility."""

import time

import pytest

from taskyard.core.states import Signal
from tests.engine.harness import wait_until
from tests.server.running_server import WAIT_S, Made, RunningServer, graph, task

RIGHTS = ("read", "submit", "cancel", "approve")
QUESTION = {"task": {"payload": {"approval": "Ship it?"}}}


def unnamed(**said: object) -> dict[str, object]:
    """A task of a bot that names no pool."""
    return {"task": {"payload": {"command": ["true"]}} | said}


def every_right(server: RunningServer, pool: str) -> str:
    return server.token(*(f"pool:{pool}:{right}" for right in RIGHTS))


def may(server: RunningServer, token: str, made: Made) -> set[str]:
    """What a token may do with a graph and its tasks, without doing it."""
    path, found = f"/api/v1/graphs/{made.id}", set()
    echo = {"tasks": {"new": {"task": {"payload": {"noop": True}}}}}
    for what, method, route, body in [
        ("read", "GET", path, None),
        ("extend", "POST", f"{path}/tasks", echo),
        ("cancel", "POST", f"{path}/cancel", {"from": ["nobody"]}),
        *((f"read {label}", "GET", f"/api/v1/tasks/{id}", None) for label, id in made.tasks.items()),
    ]:
        if server.ask(method, route, body, token=token).status != 403:
            found.add(what)
    return found


def test_a_task_that_names_no_pool_is_in_the_default_one(either_server: RunningServer) -> None:
    made = either_server.submit(
        graph(a=unnamed(), b=unnamed(dimensions={"os": "Linux"})), token=every_right(either_server, "default")
    )
    shown = either_server.get(f"/api/v1/tasks/{made.tasks['b']}")["definition"]["slices"][0]
    assert dict(shown["dimensions"]) == {"os": ["Linux"], "pool": ["default"]}
    either_server.hello("l1", "lab", os="Linux")
    either_server.hello("d1", "default", os="Linux")
    assert either_server.claim("l1") == []
    assert {lease.task for lease in either_server.claim("d1")} == {made.key("a"), made.key("b")}


def test_a_token_without_the_default_pool_submits_nothing_that_names_no_pool(server: RunningServer) -> None:
    denied = server.ask("POST", "/api/v1/graphs", graph(a=unnamed()), token=server.token("pool:lab:submit"))
    assert (denied.status, "pool:default:submit" in denied.json["detail"]) == (403, True)


def test_a_running_task_reaches_no_bot_of_another_pool_by_its_id(either_server: RunningServer) -> None:
    made = either_server.submit(graph(a=unnamed()))
    either_server.hello("d1", "default")
    either_server.hello("l1", "lab")
    (lease,) = either_server.claim("d1")
    request = graph(a=unnamed(dimensions={"id": "l1"}))
    child = either_server.submit(request, token=either_server.run_token(lease))
    grown = {"tasks": {"b": unnamed(dimensions={"id": "l1"})}}
    assert (
        either_server.ask("POST", f"/api/v1/graphs/{made.id}/tasks", grown, token=either_server.run_token(lease)).status
        == 200
    )
    assert either_server.claim("l1") == []
    assert either_server.get(f"/api/v1/tasks/{child.tasks['a']}/why")["sentence"] == (
        "a is waiting: no bot of pool default could run it; l1 could, but is in pool lab"
    )


def test_bots_of_another_pool_are_named_only_to_callers_who_may_read_them(server: RunningServer) -> None:
    made = server.submit(graph(a=unnamed()))
    server.hello("l1", "lab")
    shown = server.get(f"/api/v1/tasks/{made.tasks['a']}/why", token=server.token("pool:default:read"))
    assert "l1" not in str(shown)


def test_the_capacity_of_the_default_pool_binds_what_names_no_pool(either_server: RunningServer) -> None:
    assert either_server.ask("PUT", "/api/v1/pools/default", {"capacity": 2}).status == 200
    made = either_server.submit(graph(**{f"t{number}": unnamed() for number in range(6)}))
    either_server.hello()
    left, deadline = {made.key(label) for label in made.tasks}, time.monotonic() + WAIT_S
    while left:
        assert time.monotonic() < deadline
        either_server.engine.schedule()
        leases = either_server.claim(want=8)
        assert len(leases) <= 2
        for lease in leases:
            either_server.end(lease)
        left -= {lease.task for lease in leases}


@pytest.mark.parametrize(
    "document",
    [
        graph(ask=QUESTION),
        graph(idle={"task": {"payload": {"noop": True}}}),
        graph(outer={"task": {"payload": {"graph": graph(ask=QUESTION)}}}),
    ],
)
def test_a_graph_in_which_nothing_names_a_pool_is_of_the_default_one(
    either_server: RunningServer, document: object
) -> None:
    made = either_server.submit(document, token=every_right(either_server, "default"))
    assert may(either_server, every_right(either_server, "lab"), made) == set()
    everything = {"read", "extend", "cancel", *(f"read {label}" for label in made.tasks)}
    assert may(either_server, every_right(either_server, "default"), made) == everything


def test_what_the_server_runs_belongs_to_the_pools_of_the_other_tasks(either_server: RunningServer) -> None:
    lab = every_right(either_server, "lab")
    made = either_server.submit(graph(a=task(dimensions={"pool": "lab"}), ask=QUESTION), token=lab)
    assert may(either_server, every_right(either_server, "default"), made) == set()
    assert may(either_server, lab, made) == {"read", "extend", "cancel", "read a", "read ask"}
    denied = either_server.ask(
        "POST", f"/api/v1/tasks/{made.tasks['ask']}/approve", token=every_right(either_server, "default")
    )
    assert (denied.status, "pool:lab:approve" in denied.json["detail"]) == (403, True)


def test_a_graph_around_others_belongs_to_their_pools(either_server: RunningServer) -> None:
    inside = graph(a=task(dimensions={"pool": "lab"}))
    document = graph(
        outer={"task": {"payload": {"graph": inside}}}, other={"task": {"payload": {"graph": graph(ask=QUESTION)}}}
    )
    made = either_server.submit(document, token=every_right(either_server, "lab"))
    assert may(either_server, every_right(either_server, "default"), made) == set()
    assert "read outer" in may(either_server, every_right(either_server, "lab"), made)


def test_rights_on_a_task_are_those_of_its_pool_also_in_a_graph_over_several(either_server: RunningServer) -> None:
    made = either_server.submit(graph(here=unnamed(), there=task(dimensions={"pool": "lab"}), ask=QUESTION))
    either_server.hello("l1", "lab")
    (lease,) = either_server.claim("l1")
    either_server.print(lease, 0, b"of the lab", bot="l1")
    either_server.end(lease, Signal.FAIL, result='{"of": "the lab"}', bot="l1")
    default, there = every_right(either_server, "default"), f"/api/v1/tasks/{made.tasks['there']}"
    for method, path in [
        ("GET", there),
        ("GET", f"{there}/output"),
        ("GET", f"{there}/result"),
        ("GET", f"{there}/inputs"),
        ("GET", f"{there}/attempts"),
        ("POST", f"{there}/cancel"),
        ("POST", f"{there}/rerun"),
    ]:
        assert either_server.ask(method, path, token=default).status == 403, path
    chosen = {"from": ["there"]}
    assert either_server.ask("POST", f"/api/v1/graphs/{made.id}/cancel", chosen, token=default).status == 403
    assert either_server.ask("GET", f"{there}/output", token=every_right(either_server, "lab")).body == b"of the lab"
    assert either_server.ask("GET", f"/api/v1/graphs/{made.id}", token=default).status == 200
    assert either_server.ask("GET", f"/api/v1/tasks/{made.tasks['ask']}", token=default).status == 200


def test_a_right_in_one_pool_of_a_graph_neither_cancels_nor_reruns_all_of_it(either_server: RunningServer) -> None:
    made = either_server.submit(graph(here=unnamed(), there=task(dimensions={"pool": "lab"})))
    either_server.hello("l1", "lab")
    (lease,) = either_server.claim("l1")
    either_server.end(lease, Signal.FAIL, bot="l1")
    default, path = every_right(either_server, "default"), f"/api/v1/graphs/{made.id}"
    for route, lacking in (("rerun", "pool:lab:submit"), ("cancel", "pool:lab:cancel")):
        denied = either_server.ask("POST", f"{path}/{route}", token=default)
        assert (denied.status, lacking in denied.json["detail"]) == (403, True), route
    assert either_server.get(f"/api/v1/tasks/{made.tasks['there']}")["state"] == "failed"
    both = either_server.token(
        *(f"pool:{pool}:{right}" for pool in ("default", "lab") for right in ("submit", "cancel"))
    )
    assert either_server.ask("POST", f"{path}/rerun", token=both).json["total"] == 1
    assert either_server.ask("POST", f"{path}/cancel", {"from": ["here"]}, token=default).status == 200
    assert either_server.ask("POST", f"{path}/cancel", token=both).status == 200


def test_a_right_in_one_pool_cancels_no_dependents_in_another(either_server: RunningServer) -> None:
    there = task("here", dimensions={"pool": "lab"})
    made = either_server.submit(graph(here=unnamed(), there=there, after=task("there")))
    default, path = every_right(either_server, "default"), f"/api/v1/tasks/{made.tasks['here']}/cancel"
    asked = {"from": ["here"]}
    assert either_server.ask("POST", path, {"subtree": True}, token=default).status == 403
    assert either_server.ask("POST", f"/api/v1/graphs/{made.id}/cancel", asked, token=default).status == 403
    assert either_server.get(f"/api/v1/tasks/{made.tasks['there']}")["state"] == "unscheduled"
    assert (
        either_server.ask("POST", f"/api/v1/graphs/{made.id}/cancel", {"from": ["after"]}, token=default).status == 200
    )
    both = either_server.token("pool:default:cancel", "pool:lab:cancel")
    assert either_server.ask("POST", path, {"subtree": True}, token=both).json["total"] == 3


def test_an_extension_requires_only_tasks_that_its_sender_may_read(either_server: RunningServer) -> None:
    made = either_server.submit(graph(here=unnamed(), there=task(dimensions={"pool": "lab"})))
    default, path = every_right(either_server, "default"), f"/api/v1/graphs/{made.id}/tasks"
    for want in ("there", {"task": "there", "on": "always"}):
        denied = either_server.ask("POST", path, graph(spy={**task(), "requires": [want]}), token=default)
        assert (denied.status, "pool:lab:read" in denied.json["detail"]) == (403, True), want
    assert list(either_server.get(f"/api/v1/graphs/{made.id}")["nameMapping"]) == ["here", "there"]
    assert either_server.ask("POST", path, graph(beside=task("here")), token=default).status == 200
    both = either_server.token("pool:default:submit", "pool:lab:read")
    assert either_server.ask("POST", path, graph(last=task("there")), token=both).status == 200


def test_an_approval_that_names_a_pool_is_listed_only_with_the_right_to_read_it(either_server: RunningServer) -> None:
    asks = {"task": {"payload": {"approval": "Ship it?"}, "dimensions": {"pool": "lab"}}}
    made = either_server.submit(graph(a=unnamed(), ask=asks, all=QUESTION))
    wait_until(lambda: len(either_server.get("/api/v1/approvals")["items"]) == 2)
    for pool, labels in (("default", {"all"}), ("lab", {"ask", "all"}), ("other", set())):
        listed = either_server.get("/api/v1/approvals", token=every_right(either_server, pool))["items"]
        assert {one["label"] for one in listed if one["graph_id"] == made.id} == labels, pool
