"""Queries of `why`, on both databases: each finds its rows, and stops at its limit."""

from collections.abc import Iterator

import pytest

from taskyard.core.states import HOLDING, UNSUCCESSFUL, On, Reason, Signal, State
from taskyard.core.structs import struct_replace
from taskyard.store.connection import Repo, Store, open_store
from taskyard.store.repo.events import encode_fact, encode_transition
from taskyard.store.repo.read import EndedAttempt, QueuePosition
from tests.store.rows import LATER, NOW, READY, add_graph, add_tasks, move

S = State


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = open_store(database_url)
    yield store
    store.close()


def contend(repo: Repo, *ids: int) -> None:
    tasks = list(repo.tasks.get(ids).values())
    for task in tasks:
        task.needs_admission = True
    repo.tasks.write_unmoved(tasks)


def test_prerequisites_are_found_by_state(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2, 3, 9)
        repo.edges.add([(1, 9, "success"), (2, 9, "always"), (2, 9, "failure"), (3, 9, "success")])
        move(repo, 2, *READY, S.RUNNING, bot="b1")
        move(repo, 2, S.FAILED)
    with store.read() as repo:
        assert repo.read.prerequisites(9, [S.UNSCHEDULED], 9) == [
            (1, On.SUCCESS, S.UNSCHEDULED), (3, On.SUCCESS, S.UNSCHEDULED),
        ]  # fmt: skip
        assert repo.read.prerequisites(9, [S.UNSCHEDULED], 1) == [(1, On.SUCCESS, S.UNSCHEDULED)]
        assert {on for _, on, _ in repo.read.prerequisites(9, UNSUCCESSFUL, 9)} == {On.ALWAYS, On.FAILURE}
        assert repo.read.prerequisites(9, [], 9) == []


def test_labels_ended_attempts_and_requests_are_found_by_task(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2)
        repo.tasks.add_definitions([(1, 1, "a", "{}", None, "", ""), (2, 1, "b", "{}", None, "", "")])
        task = move(repo, 1, S.PENDING)
        task.life = struct_replace(task.life, state=S.WAITING, attempt=2)
        repo.tasks.write_moved([(task, S.PENDING)])
        repo.attempts.add([(1, number, f"b{number}", "s", "p", 1, 1, 0, NOW, None) for number in (1, 2)])
        assert repo.read.ended_attempts([1, 2]) == {}
        repo.attempts.end([(1, 2, LATER, "fail", "exit_code", 3)])
        repo.events.add_audits(
            [(NOW + n, f"p{n}", action, 1, "") for n, action in enumerate(["cancel", "x", "cancel"])]
        )
    with store.read() as repo:
        assert repo.read.labels([1, 2, 404]) == {1: "a", 2: "b"}
        assert repo.read.labels([]) == {}
        assert repo.read.ended_attempts([1, 2]) == {1: EndedAttempt(2, "b2", 3)}
        assert repo.read.ended_attempts([]) == {}
        assert repo.read.last_requests([1, 2], "cancel", 9) == [(1, "p2", NOW + 2), (1, "p0", NOW)]
        assert repo.read.last_requests([1, 2], "cancel", 1) == [(1, "p2", NOW + 2)]
        assert repo.read.last_requests([], "cancel", 1) == []
        assert repo.read.audit_notes([1, 2], "cancel").keys() == {1}
        assert repo.read.audit_notes([], "cancel") == {}


def test_holders_of_mutexes_are_found_by_bot_and_kind(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2, 3, 4, is_constrained=1)
        for id in (1, 2, 3):
            move(repo, id, *READY, S.RUNNING, bot="b1" if id < 3 else "b2")
    with store.read() as repo:
        (kind,) = {one.kind for one in repo.tasks.read([1, 2])}
        assert repo.read.subgraph_holders("b1", kind, 9) == [1, 2]
        assert repo.read.subgraph_holders("b1", kind, 1) == [1]
        assert repo.read.subgraph_holders("b1", "graph", 9) == []


def test_tasks_ahead_in_a_queue_are_counted_up_to_a_limit(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        repo.queues.add([(8, 1, 8, "any", "lab", '[["pool",["lab"]]]', 0)], 1)
        add_tasks(repo, 1, 2, 3, queue_id=8)
        add_tasks(repo, 4, queue_id=8, priority=1)
        add_tasks(repo, 5, queue_id=8, created_ms=LATER)
        for id in (1, 2, 4, 5):
            move(repo, id, *READY)
    with store.read() as repo:
        assert repo.read.queues([8, 404]) == {8: ("lab", (("pool", ("lab",)),))}
        assert repo.read.queues([]) == {}
        assert (
            repo.read.count_ahead(8, QueuePosition(100, NOW, 2), 9) == 2
        )  # the urgent one, and the one created before it
        assert repo.read.count_ahead(8, QueuePosition(100, LATER, 5), 9) == 3
        assert repo.read.count_ahead(8, QueuePosition(100, LATER, 5), 2) == 2


def test_the_use_of_pools_and_limits_is_summed_over_their_holders(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        repo.queues.add([(8, 1, 8, "any", "lab", "a", 0), (9, 2, 9, "any", "other", "b", 0)], 2)
        add_tasks(repo, 1, 2, 3, queue_id=8, weight=3)
        add_tasks(repo, 4, queue_id=9, weight=5)
        repo.tasks.add_limits([(1, "licences", 2), (2, "licences", 4), (4, "licences", 1), (4, "seats", 7)])
        for id in (1, 2, 3, 4):
            move(repo, id, S.PENDING)
        contend(repo, 1, 2, 3, 4)
        move(repo, 1, S.WAITING)
        move(repo, 4, S.WAITING, S.RUNNING, bot="b1")
    with store.read() as repo:
        assert repo.read.pool_use("lab", HOLDING) == 3
        assert repo.read.pool_use("other", HOLDING) == 5
        assert repo.read.pool_use("nobody's", HOLDING) == 0
        assert repo.read.limit_use("licences", HOLDING) == 3
        assert repo.read.limit_use("nobody's", HOLDING) == 0


def test_held_tasks_before_a_task_are_counted_among_the_oldest(store: Store) -> None:
    reasons = [Reason.CAPACITY, Reason.RESERVED]
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2, 3, 4, 5)
        repo.admission.set_holds([(id, "capacity", "lab", None, NOW, None) for id in (1, 2, 3)])
        repo.admission.set_holds([(4, "mutex", "lab", None, NOW, None), (5, "reserved", "other", None, NOW, None)])
    with store.read() as repo:
        assert repo.read.place_in_line("lab", reasons, QueuePosition(100, NOW, 3), 9) == (2, 5)
        assert repo.read.place_in_line("lab", reasons, QueuePosition(99, NOW, 3), 9) == (0, 5)
        assert repo.read.place_in_line("other", reasons, QueuePosition(100, LATER, 1), 9) == (1, 5)
        assert repo.read.place_in_line("lab", reasons, QueuePosition(100, LATER, 9), 3) == (
            1,
            3,
        )  # 3, 4 and 5 were looked at
        assert repo.read.place_in_line("lab", [], QueuePosition(100, LATER, 9), 9) == (0, 5)


def test_events_that_may_have_moved_a_task_are_found(store: Store) -> None:
    def fact(source: State, signal: Signal, target: State) -> str:
        return encode_fact(encode_transition(source, target, signal), None, None, None)

    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2, 3)
        released, admitted = fact(S.UNSCHEDULED, Signal.RELEASE, S.PENDING), fact(S.PENDING, Signal.ADMIT, S.WAITING)
        repo.events.add(NOW, [(1, 0, [(1, [released, admitted]), (2, [released])])])
        repo.events.add(LATER, [(1, 3, [(2, [admitted])])])
        repo.tasks.add_mutexes([(id, "door", None) for id in (1, 2, 3)])
        repo.bots.begin_sessions([("b1", "p", "s", "", 1, NOW, NOW, "", None, None, 0)])
        repo.bots.add_events(
            [("b1", "fe", LATER, "ended", None, None, ""), ("b1", "ff", NOW, "connected", None, None, "")]
        )
    with store.read() as repo:
        assert [(one.subject, one.number, one.at_ms) for one in repo.read.recent_events([1, 2], 9)] == [
            (1, 1, NOW), (1, 2, NOW), (2, 3, NOW), (2, 4, LATER),
        ]  # fmt: skip
        assert [one.number for one in repo.read.recent_events([1, 2], 1)] == [4]
        assert repo.read.recent_events([], 1) == []
        assert repo.read.mutex_rivals("door", 2, 9) == [3, 1]
        assert repo.read.mutex_rivals("door", 1, 1) == [2]
        assert repo.read.bot_event_kinds("b1", NOW, 9) == ["connected"]
        assert repo.read.bot_event_kinds("b1", NOW, 1) == []
