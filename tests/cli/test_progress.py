"""Tasks that a bot was handed ahead and has not begun are not shown as running."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from taskyard.cli import main
from taskyard.cli.progress import PlainView
from taskyard.core.matching import canonical
from taskyard.embedded.events import RunEvents
from taskyard.engine.engine import Engine
from taskyard.lifecycle.commands import Begun, Hello, Poll
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.submit import Submitted
from taskyard.store import blank
from taskyard.store.connection import open_store
from taskyard.wire.progress import RunningTask
from tests.cli.live_view_stress import graph
from tests.sdk.faulty_server import FaultyServer, faulty_server, json_reply
from tests.sdk.test_client import GRAPH

#: A graph on a bot with 4 slots, which was handed 60 more tasks ahead.
BUSY = {**GRAPH, "name": "busy", "state": "running", "counts": {"successful": 1, "running": 64, "waiting": 2}}
PATH = {"graph_id": "1", "settled": False, "at_ms": 1, "total_ms": 1, "path": [], "whole": True}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    with faulty_server() as one:
        monkeypatch.setenv("TASKYARD_URL", one.url)
        monkeypatch.setenv("TASKYARD_TOKEN", "x")
        yield one


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main.call(None, list(arguments))  # type: ignore[arg-type]
    return "".join(capsys.readouterr())


def test_a_list_of_graphs_counts_them_as_left(server: FaultyServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.reply_with(json_reply({"items": [{**BUSY, "assigned": 60}]}), json_reply({"items": [BUSY]}))
    assert said(capsys, "graphs", "--columns", "running,left").split() == ["RUNNING", "LEFT", "4", "62"]
    assert said(capsys, "graphs", "--columns", "running,left").split() == ["RUNNING", "LEFT", "64", "2"]


def test_a_graph_is_shown_with_them_apart(server: FaultyServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.reply_with(
        json_reply({**BUSY, "settled": False, "assigned": 60}), json_reply(PATH), json_reply({"items": []})
    )
    assert "1 successful, 4 running, 2 waiting, 60 assigned" in said(capsys, "show", "1")


def test_a_run_knows_which_of_its_tasks_have_begun(tmp_path: Path) -> None:
    blank.create(tmp_path / "run.db")
    with Engine(open_store(f"sqlite:///{tmp_path / 'run.db'}")) as engine:
        made = engine.submit({"tasks": {label: {"task": {"payload": {"command": ["true"]}}} for label in "ab"}})
        assert isinstance(made, Submitted)
        engine.hello(Hello("b1", "s1", canonical({"id": "b1", "pool": "default"}), 1))
        polled = engine.poll(Poll("b1", "s1", "p", want=2, begun=()))
        assert isinstance(polled, PollOutcome)
        events = RunEvents(made.graph, ("a", "b"), None)
        with engine.store.read() as repo:
            assert (events.news(repo), events.running(repo)) == ([], [])
        second = polled.leases[1]
        engine.poll(Poll("b1", "s1", begun=(Begun(second.task, second.attempt, second.fence),)))
        with engine.store.read() as repo:
            assert (events.news(repo), events.running(repo)) == ([], [RunningTask("b", 1)])


def test_a_log_of_a_run_names_each_attempt_once_when_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    view = PlainView(counts=False)
    for running in ([], [RunningTask("a", 1)], [RunningTask("a", 1), RunningTask("b", 2)], []):
        view.show(graph(len(running)), partial(list, running))
    assert capsys.readouterr().err.splitlines() == ["running     a", "running     b (attempt 2)"]
