"""The requests of a client, and how it reads the answers."""

import subprocess
import sys

import pytest

from taskyard.sdk import Client, Forbidden, NotFound, Refused, ServerFault, Unauthorised, Unset
from taskyard.sdk import client as client_module
from tests.sdk.faulty_server import FaultyServer, Reply, json_reply, problem

GRAPH = {
    "id": "78a6ff3e8d8c0f28", "name": "trial", "state": "running", "settled": False, "created_ms": 1, "moved_ms": 2,
    "canceled_ms": None, "active": 1, "behind": 0, "unhandled": 0, "routing": "", "description": "", "tags": {},
    "schedulerId": "taskyard", "counts": {"running": 1},
}  # fmt: skip
TASK = {
    "id": "00c0ffee12345678", "graph_id": "78a6ff3e8d8c0f28", "label": "a", "state": "running", "reason": "under_way",
    "kind": "script", "attempt": 1, "created_ms": 1, "moved_ms": 1, "priority": 100, "bot": "b", "slice_index": 0,
    "routing": "", "rerunsAllowed": 0, "rerunsLeft": 0, "retries_left": 2, "deadline_ms": None, "not_before_ms": None,
    "resolution": None,
}  # fmt: skip
ATTEMPT = {
    "number": 1, "bot": "b", "round": 1, "slice_index": 0, "claimed_ms": 1, "ended_ms": None, "signal": None,
    "reason": None, "exit_code": None, "output_bytes": 0, "truncated": False,
}  # fmt: skip


def attempts(ended: bool) -> Reply:
    return json_reply({"items": [{**ATTEMPT, "ended_ms": 5 if ended else None}]})


def page(count: int, following_page: str | None) -> Reply:
    return json_reply({"items": [GRAPH] * count, "next": following_page})


def test_pages_are_asked_for_as_they_are_taken(server: FaultyServer, client: Client) -> None:
    server.reply_with(page(2, "more"), page(0, "still more"), page(1, None))
    graphs = client.graphs(state="running")
    assert next(graphs).name == "trial"
    assert len(server.asked) == 1
    assert len(list(graphs)) == 2
    assert [asked.path.partition("?")[2] for asked in server.asked] == [
        "state=running&limit=200", "state=running&cursor=more&limit=200", "state=running&cursor=still+more&limit=200",
    ]  # fmt: skip


def test_no_more_pages_are_requested_than_are_used(server: FaultyServer, client: Client) -> None:
    server.reply_with(page(2, "more"), page(1, "more"))
    assert len(list(client.graphs(limit=3))) == 3
    assert [asked.path.rpartition("=")[2] for asked in server.asked] == ["3", "1"]


def test_names_come_in_pages_too(server: FaultyServer, client: Client) -> None:
    server.reply_with(json_reply({"nameMapping": {"a": "1"}, "next": "x"}), json_reply({"nameMapping": {"b": "2"}}))
    assert client.names("78a6ff3e8d8c0f28") == {"a": "1", "b": "2"}


def test_a_name_is_one_part_of_a_path_whatever_is_in_it(server: FaultyServer, client: Client) -> None:
    server.reply_with(problem(404))
    with pytest.raises(NotFound):
        client.bot("../a b?c#d")
    assert server.asked[0].path == "/api/v1/bots/..%2Fa%20b%3Fc%23d"


@pytest.mark.parametrize(
    ("status", "kind"), [(400, Refused), (401, Unauthorised), (403, Forbidden), (404, NotFound), (500, ServerFault)]
)
def test_a_refusal_has_its_kind_and_every_fault(
    status: int, kind: type[Refused], server: FaultyServer, client: Client
) -> None:
    faults = [{"message": "is wrong", "path": "tasks.a"}, {"message": "is also wrong", "path": "tasks.b"}]
    server.reply_with(problem(status, "why", faults))
    with pytest.raises(Refused) as refused:
        client.submit({})
    assert type(refused.value) is kind
    assert (str(refused.value), refused.value.problem.code) == (f"detail of {status}", "why")
    assert [(one.path, one.message) for one in refused.value.faults] == [
        ("tasks.a", "is wrong"), ("tasks.b", "is also wrong"),
    ]  # fmt: skip


def test_a_wait_ends_when_the_graph_is_settled(server: FaultyServer, client: Client) -> None:
    server.reply_with(json_reply(GRAPH), json_reply(GRAPH), json_reply({**GRAPH, "settled": True, "state": "finished"}))
    assert client.wait("78a6ff3e8d8c0f28", 60).state == "finished"


def test_a_wait_that_times_out_has_the_state_of_the_graph(server: FaultyServer, client: Client) -> None:
    server.reply_with(json_reply(GRAPH))
    with pytest.raises(TimeoutError, match="graph 78a6ff3e8d8c0f28 is running"):
        client.wait("78a6ff3e8d8c0f28", 0)


def test_output_that_is_cut_goes_on_where_it_was_cut(
    server: FaultyServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "PAUSE_SECONDS", 0.001)
    server.reply_with(
        json_reply(TASK),
        attempts(ended=False), Reply(body=b"hello wide world", cut=5),
        Reply(cut=0),  # and then the server is away for a moment
        attempts(ended=False), Reply(body=b" wide"),  # a server that stops ends its streams
        attempts(ended=True), Reply(body=b" world"),
    )  # fmt: skip
    assert b"".join(client.follow("00c0ffee12345678")) == b"hello wide world"
    starts = [asked.path.partition("?")[2] for asked in server.asked if "/output" in asked.path]
    assert starts == ["attempt=1&follow=true", "attempt=1&start=5&follow=true", "attempt=1&start=10&follow=true"]


def test_a_task_that_ended_without_an_attempt_printed_nothing(server: FaultyServer, client: Client) -> None:
    server.reply_with(
        json_reply({**TASK, "attempt": 0}), json_reply({**TASK, "attempt": 0, "resolution": {"failed": True}})
    )
    assert list(client.follow("00c0ffee12345678")) == []


def test_a_running_task_finds_server_token_and_itself_in_its_environment(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"URL": server.url, "TOKEN": "run", "TASK_ID": "00c0ffee12345678", "GRAPH_ID": "78a6ff3e8d8c0f28"}
    for name, value in own.items():
        monkeypatch.setenv(f"TASKYARD_{name}", value)
    server.reply_with(Reply(204, b""), Reply(204, b""), Reply(204, b""), json_reply({"before": 7}))
    with Client.from_environment() as client:
        client.publish_result({"answer": 42})
        client.publish_progress("half of it")
        client.publish_checkpoint(b"\x00\xff")
        assert client.inputs() == {"before": 7}
        assert client.own_graph == "78a6ff3e8d8c0f28"
    below = "/api/v1/tasks/00c0ffee12345678"
    assert [(asked.method, asked.path.removeprefix(below), asked.body) for asked in server.asked] == [
        ("PUT", "/result", b'{"answer":42}'),
        ("PUT", "/progress", b"half of it"),
        ("PUT", "/checkpoint", b"\x00\xff"),
        ("GET", "/inputs", b""),
    ]


def test_outside_of_a_task_there_is_nothing_to_find(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKYARD_TASK_ID", raising=False)
    with pytest.raises(Unset, match="TASKYARD_TASK_ID"):
        Client.from_environment()
    with pytest.raises(Unset, match="name a task"):
        Client("http://127.0.0.1:1", "x").publish_result(1)


def test_a_dag_is_had_without_a_client_and_a_client_without_what_a_server_needs() -> None:
    dag, client = _loaded_by("Dag"), _loaded_by("Client")
    assert not {"http.client", "msgspec", "taskyard.sdk"} & dag
    assert not {"http.client", "ssl", "fastapi", "sqlalchemy", "taskyard.engine", "taskyard.core"} & client


def _loaded_by(name: str) -> set[str]:
    program = f"import sys; from taskyard import {name}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())
