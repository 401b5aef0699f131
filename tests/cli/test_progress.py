"""What commands say of tasks that bots have in hand and have not begun: they do not run yet."""

from collections.abc import Iterator

import pytest

from taskyard.cli import main
from tests.sdk.faulty_server import FaultyServer, faulty_server, json_reply
from tests.sdk.test_client import GRAPH

#: 4 slots, and what was handed ahead to them.
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


def test_a_list_of_graphs_counts_them_among_what_is_left(
    server: FaultyServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.reply_with(json_reply({"items": [{**BUSY, "assigned": 60}]}), json_reply({"items": [BUSY]}))
    assert said(capsys, "graphs", "--columns", "running,left").split() == ["RUNNING", "LEFT", "4", "62"]
    assert said(capsys, "graphs", "--columns", "running,left").split() == ["RUNNING", "LEFT", "64", "2"]


def test_a_graph_is_shown_with_them_apart(server: FaultyServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.reply_with(
        json_reply({**BUSY, "settled": False, "assigned": 60}), json_reply(PATH), json_reply({"items": []})
    )
    assert "1 successful, 4 running, 2 waiting, 60 assigned" in said(capsys, "show", "1")
