"""Queries for lists, and tokens, on both databases."""

from collections.abc import Iterator

import pytest

from taskyard.core.states import Millis, State
from taskyard.core.structs import struct_replace
from taskyard.store.connection import Store, open_store
from taskyard.store.repo.read import FIRST, FIRST_NAME, BotRow, GraphFilter, LastAttemptRow
from taskyard.store.repo.tokens import END, TokenRow
from tests.store.rows import NOW, READY, add_graph, add_tasks, move


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = open_store(database_url)
    yield store
    store.close()


def test_the_first_signing_key_stays(store: Store) -> None:
    with store.write() as repo:
        assert repo.tokens.signing_keys() == []
        repo.tokens.add_signing_key(b"\x00\xff" * 16)
    with store.write() as repo:
        repo.tokens.add_signing_key(b"x" * 32)
    with store.read() as repo:
        assert repo.tokens.signing_keys() == [b"\x00\xff" * 16]
    with store.write() as repo:
        repo.tokens.set_signing_keys([b"y" * 32, b"\x00\xff" * 16])
    with store.read() as repo:
        assert repo.tokens.signing_keys() == [b"y" * 32, b"\x00\xff" * 16]


def test_admins_are_valid_tokens_with_the_admin_scope(store: Store) -> None:
    scopes = ['["admin"]', '["pool:lab:admin"]', '["pool:lab:read","admin"]', '["admin"]', '["admin"]']
    with store.write() as repo:
        repo.tokens.add([(f"t{place}", "user", "ann", "d", one, None, NOW, None) for place, one in enumerate(scopes)])
        repo.tokens.expire("t3", NOW)
        repo.tokens.expire("t3", NOW + 9)
        repo.tokens.revoke("t4", NOW)
        assert repo.tokens.valid_with_scope("admin", Millis(NOW)) == ["t0", "t2"]


def test_tokens_are_stored_found_listed_and_revoked_once(store: Store) -> None:
    rows = [(f"t{number}", "user", "ann", "d", "[]", None, NOW + number // 2, None) for number in range(5)]
    with store.write() as repo:
        repo.tokens.add(rows)
    with store.read() as repo:
        first = repo.tokens.page(END, 3)
        rest = repo.tokens.page((first[-1].created_ms, first[-1].id), 3)
        assert [row.id for row in (*first, *rest)] == ["t4", "t3", "t2", "t1", "t0"]
        assert repo.tokens.find(["t1", "none"]) == {
            "t1": TokenRow("t1", "user", "ann", "d", "[]", None, NOW, None, None)
        }
        assert repo.tokens.find([]) == {}
    with store.write() as repo:
        assert repo.tokens.revoke("t1", NOW) is True
        assert repo.tokens.revoke("t1", NOW) is False
        assert repo.tokens.revoke("none", NOW) is False


def test_graphs_are_listed_by_a_filter(store: Store) -> None:
    with store.write() as repo:
        for id in (3, 4, 5):
            add_graph(repo, id)
            repo.graphs.add_definition(id, ("taskyard", f"g{id}", "", "", "[]", ""))
            assert repo.read.graph(id) is None  # it is still being loaded
            repo.graphs.set_loader(id, None)
        repo.graphs.add_pools(3, ["a", "b"])
        repo.graphs.add_pools(4, ["c"])
    with store.read() as repo:
        every = repo.read.graphs(GraphFilter(), FIRST, 10)
        assert [row.id for row in every] == [3, 4, 5]
        assert repo.read.graph(3) == every[0]
        assert repo.read.graph(9) is None
        assert [row.id for row in repo.read.graphs(GraphFilter(), 3, 1)] == [4]
        assert [row.id for row in repo.read.graphs(GraphFilter(name="g4"), FIRST, 10)] == [4]
        assert repo.read.graphs(GraphFilter(state="canceled"), FIRST, 10) == []
        assert [row.id for row in repo.read.graphs(GraphFilter(pools=frozenset("a")), FIRST, 10)] == [3]
        assert [row.id for row in repo.read.graphs(GraphFilter(pools=frozenset("abc")), FIRST, 10)] == [3, 4]
        assert [row.id for row in repo.read.graphs(GraphFilter(pools=frozenset()), FIRST, 10)] == []
        assert repo.graphs.pools_of([3, 4, 5]) == {3: frozenset("ab"), 4: frozenset("c")}
        assert repo.graphs.pools_of([]) == {}


def test_tasks_are_listed_and_counted_with_their_labels(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo, 1)
        repo.graphs.add_pools(1, ["lab"])
        add_tasks(repo, 11, 12, 13, graph_id=1)
        task = move(repo, 12, *READY)
        task.life, task.bot = struct_replace(task.life, state=State.RUNNING, attempt=1), "b1"
        repo.tasks.write_moved([(task, State.WAITING)])
        repo.tasks.add_definitions([(id, 1, f"t{id}", "{}", None, "", "") for id in (11, 12, 13)])
        repo.attempts.add([(12, 1, "b1", "s", "p", 1, 1, 0, NOW, None)])
        repo.attempts.end([(12, 1, NOW, "fail", "exit_code", 7)])
        repo.attempts.add_results([(12, 1, '{"a": 1}')])
    with store.read() as repo:
        assert repo.read.tasks(1, FIRST, "", 2) == [11, 12]
        assert repo.read.tasks(1, 11, "", 9) == [12, 13]
        assert repo.read.tasks(1, FIRST, "running", 9) == [12]
        assert repo.read.counts(1) == repo.read.totals() == {"unscheduled": 2, "running": 1}
        assert repo.read.counts_with_assigned(1) == ({"unscheduled": 2, "running": 1}, 0)
        assert repo.read.labels_page(1, 11, 9) == [("t12", 12), ("t13", 13)]
        assert repo.read.leased_of_kind("b1", "command", None, FIRST, 9) == [12]
        assert repo.read.leased_of_kind("b1", "command", frozenset({"lab"}), FIRST, 9) == [12]
        assert repo.read.leased_of_kind("b1", "command", frozenset({"other"}), FIRST, 9) == []
        assert repo.read.leased_of_kind("b1", "command", None, 12, 9) == []
        assert repo.read.leased_of_kind("b1", "noop", None, FIRST, 9) == []
        assert repo.read.sinks(1, ["running"], 9) == [11, 13]
        assert repo.read.results(12) == {1: '{"a": 1}'}
        assert repo.read.ids_ending_in("0000c", 9) == ([], [12])
        assert repo.read.ids_ending_in("00001", 9) == ([1], [])
        runs = repo.read.last_attempts([11, 12])
        assert (runs[12].bot, runs[12].exit_code, runs[12].has_result) == ("b1", 7, True)
        assert runs[11] == LastAttemptRow(None, None, None, None, False)
        assert repo.read.last_results([11, 12]) == {12: '{"a": 1}'}


def test_bots_are_listed_with_their_own_and_an_admins_settings(store: Store) -> None:
    with store.write() as repo:
        repo.bots.begin_sessions([(f"b{number}", "p", "s", "", 2, NOW, NOW, "", None, None, 0) for number in range(3)])
        repo.bots.set_dimensions([(f"b{number}", "[]") for number in range(3)])
        repo.bots.set_settings([("b1", "burnt", None, 1, 0)])
        repo.bots.add_events([("b1", id, NOW, "connected", None, None, "") for id in ("fe", "ff")])
        repo.bots.set_aggregation("current", "{}")
        repo.bots.set_aggregation("current", '{"a": []}')
    with store.read() as repo:
        assert [row.id for row in repo.read.bots(FIRST_NAME, 2)] == ["b0", "b1"]
        assert [row.id for row in repo.read.bots("b1", 2)] == ["b2"]
        assert repo.read.bot("b1") == BotRow("b1", 2, NOW, NOW, "burnt", None, 1, 0, "[]", 0, 0, 0, 0, None, "", 0)
        assert repo.read.bot("b9") is None
        assert repo.read.bot_settings("b1") == ("burnt", None, True, False)
        assert repo.read.bot_settings("b0") == (None, None, False, False)
        assert [row[0] for row in repo.read.bot_events("b1", NOW + 1, "", 9)] == ["fe", "ff"]
        assert [row[0] for row in repo.read.bot_events("b1", NOW, "fe", 9)] == ["ff"]
        assert repo.read.bot_events("b1", NOW - 1, "", 9) == []
        assert repo.read.bot_attempts("b1", 9) == []
        assert repo.read.aggregation("current") == '{"a": []}'
        assert repo.read.aggregation("other") is None


def test_a_session_is_found_by_its_kind_until_it_is_ended(store: Store) -> None:
    with store.write() as repo:
        repo.tokens.add_session("d1", "browser", "t1", Millis(NOW), NOW + 9)
        assert repo.tokens.session("d1", "browser") == ("t1", NOW + 9)
        assert (repo.tokens.session("d1", "link"), repo.tokens.session("d2", "browser")) == (None, None)
        assert repo.tokens.end_session("d1", "link") is False
        assert repo.tokens.end_session("d1", "browser") is True
        assert repo.tokens.end_session("d1", "browser") is False
        assert repo.tokens.session("d1", "browser") is None


def test_sessions_that_are_over_are_deleted_and_of_a_token_all_but_the_newest(store: Store) -> None:
    with store.write() as repo:
        for place in range(4):
            repo.tokens.add_session(f"d{place}", "browser", "t1", Millis(NOW + place), NOW + 99)
        repo.tokens.add_session("over", "link", "t2", Millis(NOW), NOW + 5)
        repo.tokens.add_session("other", "browser", "t2", Millis(NOW), NOW + 6)
        repo.tokens.trim_sessions("t1", Millis(NOW + 5), 2)
        kept = [digest for digest in ("d0", "d1", "d2", "d3", "other") if repo.tokens.session(digest, "browser")]
        assert kept == ["d2", "d3", "other"]
        assert repo.tokens.session("over", "link") is None


def test_the_shape_of_a_graph_is_read_in_the_order_of_its_tasks(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_graph(repo, 2)
        add_tasks(repo, 3, 1, 2)
        add_tasks(repo, 4, loading=1)
        add_tasks(repo, 5, 6, graph_id=2)
        repo.edges.add([(2, 3, "success"), (1, 3, "failure"), (1, 2, "success"), (5, 6, "success")])
        move(repo, 2, State.PENDING, State.WAITING, State.RUNNING, bot="b1")
    with store.read() as repo:
        edges = [(1, 2, "success"), (1, 3, "failure"), (2, 3, "success")]
        assert [tuple(row) for row in repo.read.edges_of(1, 9)] == edges
        assert [tuple(row) for row in repo.read.edges_of(1, 2)] == edges[:2]
        assert repo.read.states_of(1, 9) == ["unscheduled", "running", "unscheduled"]
        assert repo.read.states_of(1, 1) == ["unscheduled"]
        assert (repo.read.size(1, 9), repo.read.size(1, 2), repo.read.size(7, 9)) == (3, 2, 0)


def test_the_times_of_tasks_are_those_of_their_last_attempts(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2)
        task = move(repo, 1, State.PENDING, State.WAITING)
        task.life, task.bot = struct_replace(task.life, state=State.RUNNING, attempt=2), "b2"
        repo.tasks.write_moved([(task, State.WAITING)])
        repo.attempts.add([(1, number, f"b{number}", "s", "p", 1, 1, 0, NOW + number, None) for number in (1, 2)])
        repo.attempts.end([(1, 1, NOW + 7, "lose", "bot_lost", None)])
        rows = [("running", "b2", NOW + 2, None), ("unscheduled", None, None, None)]
        assert [tuple(row) for row in repo.read.times_of(1, 9)] == rows
        assert [tuple(row) for row in repo.read.times_of(1, 1)] == rows[:1]


def test_queues_of_pools_in_which_tasks_wait_are_counted_with_the_oldest(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        repo.queues.add([(256, 1, 1, "pool:p", "p", "a", 0), (512, 2, 2, "pool:q", "q", "b", 0)], 2)
        add_tasks(repo, 1, queue_id=256, created_ms=NOW + 2)
        add_tasks(repo, 2, queue_id=256, created_ms=NOW + 1)
        add_tasks(repo, 3, queue_id=256, created_ms=NOW)  # it does not wait
        add_tasks(repo, 4, queue_id=512)
        add_tasks(repo, 5)  # of the server itself
        for id in (1, 2, 4, 5):
            move(repo, id, *READY)
        assert sorted(repo.read.oldest_waiting()) == [(256, 2, NOW + 1), (512, 1, NOW)]
