"""Calls of different submitters are kept apart on one bot: with real processes, over real HTTP."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bot.fake_server import FakeServer, bot, serving


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(FakeServer()) as one:
        yield one


def called(server: FakeServer, submitter: str, **more: Any) -> str:
    payload = {"python": "tests.bot.agent_functions:remember", "args": [submitter], **more}
    return server.add(payload, submitter=submitter)


def result(server: FakeServer, task: str) -> dict[str, Any]:
    report = server.report(task)
    assert report.signal == "succeed", server.printed.get(task)
    found: dict[str, Any] = json.loads(bytes(report.result))
    return found


@pytest.mark.parametrize("slots", [1, 3])
def test_calls_of_different_submitters_never_share_a_process(server: FakeServer, tmp_path: Path, slots: int) -> None:
    names = ["ada", "ben", "ada", "cleo", "ben", "ada", "cleo", "ada"] * 3
    tasks = [called(server, name) for name in names]
    with bot(server, tmp_path / "state", slots=slots):
        for name, task in zip(names, tasks, strict=True):
            found = result(server, task)
            assert set(found["before"]) <= {name}, f"{name} was called in a process where others had been"
        again = [result(server, called(server, "ada")) for _ in range(2)]
    assert any(one["before"] for one in again), "calls of one submitter share a warm worker"


def test_more_submitters_than_idle_workers_are_kept_are_all_served(server: FakeServer, tmp_path: Path) -> None:
    tasks = [called(server, f"person-{number}") for number in range(12)]
    with bot(server, tmp_path / "state", slots=1):
        processes = {result(server, task)["pid"] for task in tasks}
    assert len(processes) == len(tasks)


def test_a_fresh_call_has_a_process_that_makes_no_other_call(server: FakeServer, tmp_path: Path) -> None:
    asked = [False, True, False, True, True, False, False]
    tasks = [called(server, "ada", fresh=fresh) for fresh in asked]
    with bot(server, tmp_path / "state", slots=2):
        found = [result(server, task) for task in tasks]
    alone = [one["pid"] for one, fresh in zip(found, asked, strict=True) if fresh]
    others = {one["pid"] for one, fresh in zip(found, asked, strict=True) if not fresh}
    assert [one["before"] for one, fresh in zip(found, asked, strict=True) if fresh] == [[], [], []]
    assert len(set(alone)) == len(alone)
    assert others.isdisjoint(alone)
