"""Every method of the client against a real server, on both databases."""

import threading
from collections.abc import Iterator

import pytest

from taskyard.core.states import Signal
from taskyard.sdk import Client, Conflict, Forbidden, NotFound, Refused, Unauthorised
from tests.server.running_server import RunningServer

UNKNOWN = "7ffffffffffffff8"
WORK = {"task": {"payload": {"command": ["true"]}}}
CHAIN = {"name": "chain", "tasks": {"a": WORK, "b": {**WORK, "requires": ["a"]}, "c": {**WORK, "requires": ["b"]}}}


@pytest.fixture
def server(database_url: str) -> Iterator[RunningServer]:
    with RunningServer(database_url) as made:
        yield made


@pytest.fixture
def admin(server: RunningServer) -> Iterator[Client]:
    with Client(server.http.url, server.admin) as client:
        yield client


def test_a_graph_is_submitted_grows_and_is_found(admin: Client) -> None:
    made = admin.submit(CHAIN, key="chain-1")
    assert admin.submit(CHAIN, key="chain-1").echo
    assert admin.names(made.graph_id) == made.nameMapping
    grown = admin.extend(made.graph_id, {"d": {**WORK, "requires": ["a"]}})
    assert (grown.graph_id, set(grown.nameMapping)) == (made.graph_id, {"a", "b", "c", "d"})
    assert [graph.id for graph in admin.graphs(name="chain", state="running")] == [made.graph_id]
    assert sum(admin.graph(made.graph_id).counts.values()) == 4
    assert len(list(admin.tasks(made.graph_id, limit=2))) == 2
    assert {task.label for task in admin.tasks(made.graph_id)} == {"a", "b", "c", "d"}
    assert [task.id for task in admin.tasks(made.graph_id, label="d")] == [grown.nameMapping["d"]]


def test_a_graph_can_have_an_id_of_one_s_own(admin: Client) -> None:
    assert admin.submit(CHAIN, graph_id=UNKNOWN).graph_id == UNKNOWN
    assert admin.submit(CHAIN, graph_id=UNKNOWN).echo
    with pytest.raises(Conflict):
        admin.submit({**CHAIN, "name": "other"}, graph_id=UNKNOWN)


def test_a_single_request_is_a_graph_of_one(admin: Client) -> None:
    made = admin.request({"name": "one", "task": WORK["task"]})
    assert [task.label for task in admin.tasks(made.graph_id)] == ["request"]


def test_every_fault_of_a_document_is_in_the_error(admin: Client) -> None:
    with pytest.raises(Refused) as refused:
        admin.submit({"tasks": {"a": {**WORK, "requires": ["nobody"]}, "b": {"task": 7}}})
    assert [fault.path for fault in refused.value.faults] == ["tasks.a.requires[0]", "tasks.b.task"]


def test_more_graphs_than_a_page_has_are_all_found_once(admin: Client) -> None:
    made = [admin.submit({"name": "many", "tasks": {"a": WORK}}).graph_id for _ in range(205)]
    found = [graph.id for graph in admin.graphs(name="many")]
    assert sorted(found) == sorted(made)


def test_a_task_runs_fails_and_is_tried_again(server: RunningServer, admin: Client) -> None:
    made = admin.submit(CHAIN)
    server.hello()
    (lease,) = server.claim()
    server.end(lease, Signal.FAIL)
    a = made.nameMapping["a"]
    assert admin.wait(made.graph_id, 60).state == "blocked"
    assert (admin.task(a).state, admin.attempts(a)[0].bot) == ("failed", "b1")
    assert admin.rerun_task(a).subject == a
    (again,) = server.claim()
    server.end(again, result='{"built": 7}')
    assert admin.result(a) == {"built": 7}
    graph_id = admin.task(a).graph_id
    assert admin.result(f"{graph_id}/a") == {"built": 7}
    assert admin.attempts(f"{graph_id}/a") == admin.attempts(a)
    with pytest.raises(NotFound, match="has no task 'nobody'"):
        admin.result(f"{graph_id}/nobody")
    assert admin.inputs(made.nameMapping["b"]) == {"a": {"built": 7}}
    assert [item.target for item in admin.story(a).items if item.signal == "fail"] == ["failed"]


def test_all_that_failed_in_a_graph_is_tried_again(server: RunningServer, admin: Client) -> None:
    made = admin.submit(CHAIN)
    server.hello()
    (lease,) = server.claim()
    server.end(lease, Signal.FAIL)
    assert admin.rerun_graph(made.graph_id).moved == 1


def test_what_is_canceled_ends_with_what_is_behind_it(admin: Client) -> None:
    made = admin.submit(CHAIN)
    assert admin.cancel_task(made.nameMapping["b"], subtree=True).moved == 2
    assert not admin.cancel_graph(made.graph_id).echo
    assert admin.wait(made.graph_id, 60).state == "canceled"
    assert admin.cancel_graph(made.graph_id).echo


def test_output_is_read_whole_in_part_and_as_it_comes(server: RunningServer, admin: Client, database_url: str) -> None:
    a = admin.submit(CHAIN).nameMapping["a"]
    server.hello()
    (lease,) = server.claim()
    server.print(lease, 0, b"hello \x00\xff")
    assert admin.output(a) == b"hello \x00\xff"
    assert admin.output(a, attempt=1, start=1, end=4) == b"ell"
    seen = admin.follow(a)
    first = next(seen)
    server.print(lease, 8, b" world")
    ending = threading.Thread(target=server.end, args=[lease])
    ending.start()
    assert first + b"".join(seen) == b"hello \x00\xff world"
    ending.join(60)


def test_bots_are_listed_and_their_settings_changed(server: RunningServer, admin: Client) -> None:
    server.hello("rack-1", os="Linux")
    server.hello("rack-2", os="Windows")
    assert [bot.id for bot in admin.bots(dimensions=["os:Linux"])] == ["rack-1"]
    assert {bot.id for bot in admin.bots(pool="default", state="alive")} == {"rack-1", "rack-2"}
    assert admin.set_bot("rack-1", quarantined="its disk is full").quarantined == "its disk is full"
    assert admin.set_bot("rack-1", draining=True).quarantined == "its disk is full"
    assert admin.set_bot("rack-1", quarantined=None).quarantined is None
    assert admin.bot("rack-1").draining
    assert "settings" in {event.kind for event in admin.bot_events("rack-1")}
    assert set(admin.dimensions().dimensions["os"]) == {"Linux", "Windows"}


def test_pools_are_made_and_changed(admin: Client) -> None:
    assert admin.set_pool("lab", capacity=8).capacity == 8
    assert admin.set_pool("lab", from_bots=True).from_bots
    assert admin.set_pool("lab").from_bots
    assert (admin.set_pool("lab", capacity=2).from_bots, admin.set_pool("lab").capacity) == (False, 2)
    assert admin.set_pool("lab", capacity=None).capacity is None
    assert {pool.name for pool in admin.pools()} == {"default", "lab"}


def test_tokens_are_made_used_listed_and_revoked(server: RunningServer, admin: Client) -> None:
    made = admin.new_token("user", "reader", scopes=["pool:*:read"], expires_in_ms=3_600_000)
    reader = Client(server.http.url, made.token)
    assert list(reader.graphs()) == []
    with pytest.raises(Forbidden, match="submit"):
        reader.submit(CHAIN)
    assert made.view in list(admin.tokens())
    assert admin.revoke_token(made.view.id).revoked_ms is not None
    with pytest.raises(Unauthorised):
        list(reader.graphs())


def test_a_newcomer_is_enrolled_into_the_pool_of_its_token(server: RunningServer, admin: Client) -> None:
    enrolment = admin.new_token("enrolment", "lab", pool="lab").token
    made = Client(server.http.url, enrolment).enrol("rack4-11")
    assert (made.view.kind, made.view.pool, made.view.name) == ("bot", "lab", "rack4-11")


@pytest.mark.parametrize("ask", [Client.graph, Client.task, Client.attempts, Client.story, Client.output, Client.bot])
def test_what_is_not_there_is_not_found(ask: object, admin: Client) -> None:
    assert callable(ask)
    with pytest.raises(NotFound):
        ask(admin, UNKNOWN)


def test_without_a_token_nothing_is_answered(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKYARD_TOKEN", raising=False)
    with pytest.raises(Unauthorised):
        Client(server.http.url).pools()
