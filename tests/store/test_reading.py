"""Verbs of those who only read, and of who may do what: on both databases, alike."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskyard.core.states import Millis, State
from taskyard.core.structs import struct_replace
from taskyard.store.connection import Store, open_store
from taskyard.store.repo import Access, Reading
from taskyard.store.repo.read import FIRST, FIRST_NAME, BotRow, RunRow, Wanted
from taskyard.store.repo.tokens import END, TokenRow
from tests.store.rows import NOW, READY, add_graph, add_tasks, move


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = open_store(database_url)
    yield store
    store.close()


def test_every_verb_is_tried() -> None:
    verbs = {
        f"{group.__name__.lower()}.{name}"
        for group in (Access, Reading)
        for name, _ in inspect.getmembers(group, inspect.isfunction)
        if not name.startswith("_")
    }
    tried = set(re.findall(r"txn\.(\w+\.\w+)\(", Path(__file__).read_text(encoding="utf-8")))
    assert verbs - tried == set()


def test_the_first_key_of_the_seal_stays(store: Store) -> None:
    with store.write() as txn:
        assert txn.access.seals() == []
        txn.access.add_seal(b"\x00\xff" * 16)
    with store.write() as txn:
        txn.access.add_seal(b"x" * 32)
    with store.read() as txn:
        assert txn.access.seals() == [b"\x00\xff" * 16]
    with store.write() as txn:
        txn.access.set_seals([b"y" * 32, b"\x00\xff" * 16])
    with store.read() as txn:
        assert txn.access.seals() == [b"y" * 32, b"\x00\xff" * 16]


def test_admins_are_those_who_may_do_everything_and_are_good(store: Store) -> None:
    scopes = ['["admin"]', '["pool:lab:admin"]', '["pool:lab:read","admin"]', '["admin"]', '["admin"]']
    with store.write() as txn:
        txn.access.add([(f"t{place}", "user", "ann", "d", one, None, NOW, None) for place, one in enumerate(scopes)])
        txn.access.expire("t3", NOW)
        txn.access.expire("t3", NOW + 9)
        txn.access.revoke("t4", NOW)
        assert txn.access.good_with("admin", Millis(NOW)) == ["t0", "t2"]


def test_tokens_are_kept_found_listed_and_revoked_once(store: Store) -> None:
    rows = [(f"t{number}", "user", "ann", "d", "[]", None, NOW + number // 2, None) for number in range(5)]
    with store.write() as txn:
        txn.access.add(rows)
    with store.read() as txn:
        first = txn.access.page(END, 3)
        rest = txn.access.page((first[-1].created_ms, first[-1].id), 3)
        assert [row.id for row in (*first, *rest)] == ["t4", "t3", "t2", "t1", "t0"]
        assert txn.access.find(["t1", "none"]) == {
            "t1": TokenRow("t1", "user", "ann", "d", "[]", None, NOW, None, None)
        }
        assert txn.access.find([]) == {}
    with store.write() as txn:
        assert txn.access.revoke("t1", NOW) is True
        assert txn.access.revoke("t1", NOW) is False
        assert txn.access.revoke("none", NOW) is False


def test_graphs_are_listed_by_what_is_wanted(store: Store) -> None:
    with store.write() as txn:
        for id in (3, 4, 5):
            add_graph(txn, id)
            txn.graphs.define(id, ("taskyard", f"g{id}", "", "", "[]", ""))
            assert txn.reading.graph(id) is None  # somebody is still loading it
            txn.graphs.set_loader(id, None)
        txn.graphs.add_pools(3, ["a", "b"])
        txn.graphs.add_pools(4, ["c"])
    with store.read() as txn:
        every = txn.reading.graphs(Wanted(), FIRST, 10)
        assert [row.id for row in every] == [3, 4, 5]
        assert txn.reading.graph(3) == every[0]
        assert txn.reading.graph(9) is None
        assert [row.id for row in txn.reading.graphs(Wanted(), 3, 1)] == [4]
        assert [row.id for row in txn.reading.graphs(Wanted(name="g4"), FIRST, 10)] == [4]
        assert txn.reading.graphs(Wanted(state="canceled"), FIRST, 10) == []
        assert [row.id for row in txn.reading.graphs(Wanted(pools=frozenset("a")), FIRST, 10)] == [3]
        assert [row.id for row in txn.reading.graphs(Wanted(pools=frozenset("abc")), FIRST, 10)] == [3, 4]
        assert [row.id for row in txn.reading.graphs(Wanted(pools=frozenset()), FIRST, 10)] == []
        assert txn.access.pools_of([3, 4, 5]) == {3: frozenset("ab"), 4: frozenset("c")}
        assert txn.access.pools_of([]) == {}


def test_tasks_are_listed_counted_and_named(store: Store) -> None:
    with store.write() as txn:
        add_graph(txn, 1)
        txn.graphs.add_pools(1, ["lab"])
        add_tasks(txn, 11, 12, 13, graph_id=1)
        task = move(txn, 12, *READY)
        task.life, task.bot = struct_replace(task.life, state=State.RUNNING, attempt=1), "b1"
        txn.tasks.carry([(task, State.WAITING)])
        txn.tasks.add_definitions([(id, 1, f"t{id}", "{}", None, "") for id in (11, 12, 13)])
        txn.attempts.begin([(12, 1, "b1", "s", "p", 1, 1, 0, NOW)])
        txn.attempts.end([(12, 1, NOW, "fail", "exit_code", 7)])
        txn.attempts.add_results([(12, 1, '{"a": 1}')])
    with store.read() as txn:
        assert txn.reading.tasks(1, FIRST, "", 2) == [11, 12]
        assert txn.reading.tasks(1, 11, "", 9) == [12, 13]
        assert txn.reading.tasks(1, FIRST, "running", 9) == [12]
        assert txn.reading.counts(1) == txn.reading.totals() == {"unscheduled": 2, "running": 1}
        assert txn.reading.counted(1) == ({"unscheduled": 2, "running": 1}, 0)
        assert txn.reading.names(1, 11, 9) == [("t12", 12), ("t13", 13)]
        assert txn.reading.running("b1", "command", None, FIRST, 9) == [12]
        assert txn.reading.running("b1", "command", frozenset({"lab"}), FIRST, 9) == [12]
        assert txn.reading.running("b1", "command", frozenset({"other"}), FIRST, 9) == []
        assert txn.reading.running("b1", "command", None, 12, 9) == []
        assert txn.reading.running("b1", "noop", None, FIRST, 9) == []
        assert txn.reading.sinks(1, ["running"], 9) == [11, 13]
        assert txn.reading.results(12) == {1: '{"a": 1}'}
        assert txn.reading.ending("0000c", 9) == ([], [12])
        assert txn.reading.ending("00001", 9) == ([1], [])
        runs = txn.reading.runs([11, 12])
        assert (runs[12].bot, runs[12].exit_code, runs[12].has_result) == ("b1", 7, True)
        assert runs[11] == RunRow(None, None, None, None, False)
        assert txn.reading.last_results([11, 12]) == {12: '{"a": 1}'}


def test_bots_are_listed_as_they_and_an_admin_say(store: Store) -> None:
    with store.write() as txn:
        txn.bots.begin([(f"b{number}", "p", "s", "", 2, NOW, NOW, "", None, None, 0) for number in range(3)])
        txn.bots.set_dimensions([(f"b{number}", "[]") for number in range(3)])
        txn.bots.set_settings([("b1", "burnt", None, 1, 0)])
        txn.bots.add_events([("b1", id, NOW, "connected", None, None, "") for id in ("fe", "ff")])
        txn.reading.set_aggregation("current", "{}")
        txn.reading.set_aggregation("current", '{"a": []}')
    with store.read() as txn:
        assert [row.id for row in txn.reading.bots(FIRST_NAME, 2)] == ["b0", "b1"]
        assert [row.id for row in txn.reading.bots("b1", 2)] == ["b2"]
        assert txn.reading.bot("b1") == BotRow("b1", 2, NOW, NOW, "burnt", None, 1, 0, "[]", 0, 0, 0, 0)
        assert txn.reading.bot("b9") is None
        assert txn.reading.bot_settings("b1") == ("burnt", None, True, False)
        assert txn.reading.bot_settings("b0") == (None, None, False, False)
        assert [row[0] for row in txn.reading.bot_events("b1", NOW + 1, "", 9)] == ["fe", "ff"]
        assert [row[0] for row in txn.reading.bot_events("b1", NOW, "fe", 9)] == ["ff"]
        assert txn.reading.bot_events("b1", NOW - 1, "", 9) == []
        assert txn.reading.bot_attempts("b1", 9) == []
        assert txn.reading.aggregation("current") == '{"a": []}'
        assert txn.reading.aggregation("other") is None
