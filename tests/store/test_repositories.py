"""The methods of the repositories of tasks, graphs, edges, attempts, bots and admission, on both databases."""

from collections.abc import Iterator

import pytest

from taskyard.core.graph.model import Mutex
from taskyard.core.graph.state import Handlers, Tally
from taskyard.core.states import GraphState, Millis, On, Reason, Signal, State
from taskyard.core.structs import struct_replace
from taskyard.store.connection import Repo, Store, open_store
from taskyard.store.queries import DuplicateKey, TransactionConflict
from taskyard.store.repo.admission import AdmissionLock, HoldRow, PoolRow
from taskyard.store.repo.bots import encode_dimensions
from taskyard.store.repo.events import EventRow, OutboxRow, ServerRow, encode_fact, encode_transition
from taskyard.store.repo.tasks import AttemptRow, EdgeRow, InEdge, MoveKind
from taskyard.store.rows import CallingBot
from tests.store.rows import LARGEST, LATER, NOW, READY, REFUSED, add_graph, add_tasks, move

S = State


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = open_store(database_url)
    yield store
    store.close()


# Tasks.


def test_a_task_is_read_as_it_was_inserted(store: Store) -> None:
    columns = {"is_handler": 1, "is_constrained": 1, "awaited": 2, "met": 1, "broken": 3, "impossible": 4, "loading": 1}
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 7, due_ms=NOW, not_before_ms=5, **columns)
    with store.read() as repo:
        (task,) = repo.tasks.read([7])
    assert (task.id, task.graph, task.state, task.stored) == (7, 1, S.UNSCHEDULED, S.UNSCHEDULED)
    assert (task.is_handler, task.is_constrained, task.loading, task.needs_admission) == (True, True, True, False)
    assert (task.edges.awaited, task.edges.met, task.edges.broken, task.edges.impossible) == (2, 1, 3, 4)
    assert (task.due_ms, task.life.not_before_ms, task.life.round, task.bot) == (NOW, 5, 1, None)


def test_tasks_are_read_in_order_of_their_ids_and_missing_ones_are_left_out(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 9, 3, 5)
        assert [task.id for task in repo.tasks.read([9, 404, 5, 3])] == [3, 5, 9]


def test_write_moved_writes_all_columns(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1)
        task = move(repo, 1, S.PENDING, S.WAITING, S.RUNNING, bot="b1")
        task.life = struct_replace(task.life, state=S.FAILED, attempt=1, ended=Signal.FAIL, round=2, reruns_used=3)
        task.bot, task.reason, task.avoid_bot, task.fence, task.due_ms = None, "exit_code", "b1", LARGEST, NOW
        task.handlers, task.open_continuations, task.needs_admission = Handlers(1, 2), 3, True
        repo.tasks.write_moved([(task, S.RUNNING)])
        (read,) = repo.tasks.read([1])
    assert read == task


#: For each shape of write: the state before, the states after it, and the bot at the end.
SHAPED = {
    MoveKind.ANY: ((), READY, None),
    MoveKind.READY: ((), READY, None),
    MoveKind.STARTED: (READY, (S.RUNNING,), "b1"),
    MoveKind.SENT: ((), (*READY, S.RUNNING), "b1"),
    MoveKind.ENDED: ((*READY, S.RUNNING), (S.SUCCESSFUL,), None),
}


@pytest.mark.parametrize("shape", MoveKind)
def test_write_moved_writes_several_moves_as_one_and_the_columns_of_their_kind(store: Store, shape: MoveKind) -> None:
    before, after, bot = SHAPED[shape]
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1)
        task = move(repo, 1, *before, bot="b1" if S.RUNNING in before else None)
        source = (*before, *after)[-2]
        task.life, task.bot = struct_replace(task.life, state=after[-1]), bot
        task.reason, task.moved_ms, task.due_ms = "in_line", LATER, None if shape is MoveKind.ENDED else LATER
        repo.tasks.write_moved([(task, source)], shape)
        assert repo.tasks.read([1]) == [task]


def test_write_moved_refuses_a_batch_with_a_task_that_has_moved(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2)
    with store.read() as repo:
        old = repo.tasks.read([1, 2])
    with store.write() as repo:
        move(repo, 2, S.PENDING)
    for task in old:
        task.life = struct_replace(task.life, state=S.BLOCKED)
    with pytest.raises(TransactionConflict), store.write() as repo:
        repo.tasks.write_moved([(task, S.UNSCHEDULED) for task in old])
    with store.read() as repo:
        assert [task.state for task in repo.tasks.read([1, 2])] == [S.UNSCHEDULED, S.PENDING]


@pytest.mark.parametrize("count", [1, 15, 16, 17, 63, 64, 65, 80, 145])
def test_write_moved_writes_all_tasks_or_none(store: Store, count: int) -> None:
    ids = list(range(1, count + 1))
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, *ids)
        tasks = repo.tasks.read(ids)
        assert [task.id for task in tasks] == ids
        for task in tasks:
            task.life, task.reason, task.moved_ms = task.life.at(S.PENDING), f"r{task.id}", LATER + task.id
        repo.tasks.write_moved([(task, S.UNSCHEDULED) for task in tasks])
    with store.read() as repo:
        assert repo.tasks.read(ids) == tasks
    for task in tasks:
        task.life = task.life.at(S.WAITING)
    tasks[-1].stored = S.UNSCHEDULED  # it is not there any more
    with pytest.raises(TransactionConflict), store.write() as repo:
        repo.tasks.write_moved([(task, S.PENDING) for task in tasks])
    with store.read() as repo:
        assert {task.state for task in repo.tasks.read(ids)} == {S.PENDING}


def test_write_unmoved_refuses_tasks_that_have_moved(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1)
        (task,) = repo.tasks.read([1])
        task.edges, task.handlers = struct_replace(task.edges, awaited=5, met=6), Handlers(7, 8)
        task.open_continuations, task.needs_admission, task.due_ms = 9, True, LATER
        repo.tasks.write_unmoved([task])
        assert repo.tasks.read([1]) == [task]
        task.edges = struct_replace(task.edges, broken=4, impossible=3)
        repo.tasks.write_edge_counts([task])
        assert repo.tasks.read([1]) == [task]
        move(repo, 1, S.PENDING)
    with pytest.raises(TransactionConflict), store.write() as repo:
        repo.tasks.write_unmoved([task])


MOVES_THE_SCHEMA_REFUSES = {
    "no arrow": ([S.PENDING, S.WAITING, S.RUNNING, S.SUCCESSFUL, S.RUNNING], "b1"),
    "no arrow out of successful": ([S.PENDING, S.SUCCESSFUL, S.PENDING], None),
    "a leap": ([S.WAITING], None),
    "leased by nobody": ([S.PENDING, S.WAITING, S.RUNNING], None),
    "had without a lease": ([S.PENDING, S.WAITING], "b1"),
}


@pytest.mark.parametrize("case", MOVES_THE_SCHEMA_REFUSES)
def test_the_schema_refuses_moves_that_the_state_machine_does_not_have(store: Store, case: str) -> None:
    targets, bot = MOVES_THE_SCHEMA_REFUSES[case]
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1)
        for target in targets[:-1]:
            move(repo, 1, target, bot="b1" if target is S.RUNNING else None)
    with pytest.raises(REFUSED), store.write() as repo:
        move(repo, 1, targets[-1], bot=bot)
    with store.read() as repo:
        assert repo.tasks.read([1])[0].state is (targets[-2] if len(targets) > 1 else S.UNSCHEDULED)


@pytest.mark.parametrize("born", [{"state": "pending"}, {"state": "asleep"}, {"awaited": -1}])
def test_the_schema_refuses_new_tasks_in_other_states_than_unscheduled(store: Store, born: dict[str, object]) -> None:
    with store.write() as repo:
        add_graph(repo)
    with pytest.raises(REFUSED), store.write() as repo:
        add_tasks(repo, 1, **born)


@pytest.mark.parametrize("table", ["tasks", "labels", "attempts", "queues", "dimensions", "events"])
def test_a_key_in_use_is_a_duplicate(store: Store, table: str) -> None:
    def fill(repo: Repo) -> None:
        match table:
            case "tasks":
                add_tasks(repo, 2)
            case "labels":
                repo.tasks.add_definitions([(1, 1, "a", "{}", None, "", "")])
            case "attempts":
                repo.attempts.add([(1, 1, "b", "s", "p", 1, 1, 0, NOW, None)])
            case "queues":
                repo.queues.add([(5, 1, 5, "any", "", "x", 0)], 1)
            case "dimensions":
                repo.queues.add([(6, 2, 5, "any", "", "x", 0)], 1)
            case _:
                repo.events.add(NOW, [(1, 0, [(1, ["[]"])])])

    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1)
        fill(repo)
    with pytest.raises(DuplicateKey), store.write() as repo:
        fill(repo)


def test_tasks_are_found_by_graph_state_label_and_due_time(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_graph(repo, 2)
        add_tasks(repo, 1, 2, 3, due_ms=NOW)
        add_tasks(repo, 4, awaited=1, due_ms=NOW - 1)
        add_tasks(repo, 5, loading=1)
        add_tasks(repo, 6, graph_id=2, due_ms=NOW + 5)
        repo.tasks.add_definitions(
            [(id, 1, f"t{id}", f"d{id}", None, "", "") for id in (1, 2)] + [(6, 2, "t1", "", "dd", "ada", "bea")]
        )
        move(repo, 3, S.PENDING)
        assert repo.tasks.page(1, [S.UNSCHEDULED], 1, 2) == [2, 4]
        assert repo.tasks.page(1, [S.UNSCHEDULED, S.PENDING], 1, 2) == [2, 3]
        assert repo.tasks.page_any_state(1, 1, 2) == [(2, S.UNSCHEDULED), (3, S.PENDING)]
        assert repo.tasks.roots(1, S.UNSCHEDULED, 0, 3) == [(1, True), (2, True), (3, False)]
        assert repo.tasks.loading(1, 0, 9) == [5]
        assert next(iter(repo.tasks.due(NOW, 2))) == 4
        assert repo.tasks.due(NOW, 9) == {1: NOW, 2: NOW, 3: NOW, 4: NOW - 1}
        assert repo.tasks.definitions([1, 6, 404]) == {1: ("t1", "d1"), 6: ("t1", "")}
        assert repo.tasks.owned_definitions([6]) == {6: ("t1", "", "ada")}
        assert sorted(repo.tasks.definitions_of(2)) == [(6, "t1", "", "dd")]
        assert repo.tasks.with_labels(1, ["t1", "t2", "t9"]) == {"t1": 1, "t2": 2}
        repo.tasks.mark_loaded([5])
        assert repo.tasks.loading(1, 0, 9) == []
        assert repo.tasks.roots(1, S.UNSCHEDULED, 4, 9) == [(5, True)]


def test_candidates_are_the_first_of_each_queue_and_none_of_a_canceled_graph(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo, 1)
        add_graph(repo, 2)
        repo.queues.add([(8, 1, 8, "any", "", "a", 0), (9, 2, 9, "any", "", "b", 0)], 2)
        ranks = {11: (8, 100, 5), 12: (8, 50, 9), 13: (8, 100, 4), 14: (8, 100, 4), 15: (9, 200, 1), 16: (9, 0, 1)}
        for id, (queue, priority, created) in ranks.items():
            add_tasks(repo, id, queue_id=queue, priority=priority, created_ms=created, graph_id=2 if id == 16 else 1)
            move(repo, id, *READY)
        add_tasks(repo, 17, queue_id=8, priority=1)
        assert {row[0] for row in repo.tasks.claim_candidates([8, 9], 3)} == {12, 13, 14, 15, 16}
        assert sorted(repo.tasks.claim_candidates([8], 1)) == [(12, 8, 50, 9, None)]
        assert {row[0] for row in repo.tasks.claim_candidates([8], 9)} == {11, 12, 13, 14}
        assert repo.tasks.waiting_of_kinds(8, ["command"], 3) == [12, 13, 14]
        assert repo.tasks.waiting_of_kinds(8, ["noop", "graph"], 3) == []
        assert repo.graphs.mark_canceled(2, NOW)
        assert {row[0] for row in repo.tasks.claim_candidates([9], 9)} == {15}
        assert repo.tasks.waiting_of_kinds(9, ["noop", "command"], 3) == [15]


# Graphs, edges, attempts.


def test_a_graph_is_inserted_defined_extended_and_moved(store: Store) -> None:
    definition = ("taskyard", "nightly", "r", "d", "[]", "digest")
    with store.write() as repo:
        assert repo.graphs.add(1, "running", NOW, "me")
        assert not repo.graphs.add(1, "running", LATER, "you"), "the same graph again is an echo"
        repo.graphs.add_definition(1, definition)
        repo.graphs.add_definition(1, ("x",) * 6)
        assert repo.graphs.definition(1) == definition
        assert repo.graphs.definition(2) is None
        assert repo.graphs.loading(NOW, 9) == []
        assert repo.graphs.loading(LATER, 9) == [(1, "me")]
        repo.graphs.set_loader(1, None)
        repo.graphs.set_created(1, LATER)
        repo.graphs.count_extension(1, 3)
        repo.graphs.write_states([(1, "blocked", 1, 2, 3, 4, NOW)])
        assert repo.graphs.mark_canceled(1, LATER)
        assert not repo.graphs.mark_canceled(1, NOW), "canceling twice is an echo"
        (graph,) = repo.graphs.read([1])
        assert repo.graphs.peek([1]) == [graph]
    assert (graph.state, graph.tally, graph.events) == (GraphState.BLOCKED, Tally(1, 2, 3), 4)
    assert (graph.extensions, graph.created_ms, graph.canceled_ms, graph.loader) == (3, LATER, LATER, None)


def test_an_attempt_has_one_subgraph_which_is_found_once_it_is_loaded(store: Store) -> None:
    with store.write() as repo:
        assert [repo.graphs.add(id, "running", NOW, "me", (7, id)) for id in (1, 2)] == [True, True]
        assert not repo.graphs.add(3, "running", NOW, "you", (7, 2)), "another server has it"
        assert repo.graphs.subgraphs([7, 8]) == {}
        repo.graphs.set_loader(2, None)
        assert repo.graphs.subgraphs([7, 8]) == {(7, 2): 2}
        assert [(one.parent, one.parent_attempt) for one in repo.graphs.peek([1, 2])] == [(7, 1), (7, 2)]


@pytest.mark.parametrize("row", [(1, "asleep", 0, 0, 0, 0, NOW), (1, "running", -1, 0, 0, 0, NOW)])
def test_the_schema_refuses_unknown_graph_states(store: Store, row: tuple[object, ...]) -> None:
    with store.write() as repo:
        add_graph(repo)
    with pytest.raises(REFUSED), store.write() as repo:
        repo.graphs.write_states([row])


def test_an_unloaded_graph_is_deleted_in_pages_in_any_order_of_edges(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        repo.graphs.add_definition(1, ("",) * 6)
        add_tasks(repo, *range(1, 6))
        repo.tasks.add_definitions([(id, 1, f"t{id}", "{}", None, "", "") for id in range(1, 6)])
        repo.tasks.add_mutexes([(1, "door", None)])
        repo.tasks.add_limits([(1, "licence", 2)])
        repo.edges.add([(1, 5, "success"), (5, 2, "success"), (3, 4, "always")])
        assert [repo.graphs.delete_page(1, 2) for _ in range(3)] == [False, False, True]
        assert repo.graphs.peek([1]) == []
        assert repo.graphs.definition(1) is None


def test_edges_are_read_from_both_ends_in_order(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2, 3, 4)
        repo.edges.add([(2, 3, "success"), (1, 4, "always"), (1, 3, "failure"), (1, 2, "success"), (1, 3, "always")])
        repo.edges.set_handled_rounds([(1, 3, "failure", 2), (1, 4, "always", 5)])
        move(repo, 1, S.PENDING)
        assert [(edge.prerequisite, edge.dependent) for edge in repo.edges.out_of([2, 1], 4)] == [
            (1, 2), (1, 3), (1, 3), (1, 4),
        ]  # fmt: skip
        assert repo.edges.out_of([2], 9) == [EdgeRow(2, 3, On.SUCCESS, None)]
        assert [edge.dependent for edge in repo.edges.page_out_of(1, 3, 9)] == [3, 3, 4]
        assert repo.edges.page_out_of(1, 4, 9) == [EdgeRow(1, 4, On.ALWAYS, 5)]
        assert repo.edges.page_after([1, 2], (1, 3, "always"), 9) == [
            (1, 3, "failure"),
            (1, 4, "always"),
            (2, 3, "success"),
        ]
        assert repo.edges.with_dependents([1, 2, 3, 404]) == {1, 2}
        assert repo.edges.with_dependents([]) == set()
        into = repo.edges.into([3, 2])
        assert [(edge.dependent, edge.prerequisite) for edge in into] == [(2, 1), (3, 1), (3, 1), (3, 2)]
        assert InEdge(1, 3, On.FAILURE, 2, S.PENDING, 0) in into
        assert [(edge.prerequisite, edge.on) for edge in repo.edges.page_into(3, 1, 9)][2:] == [(2, On.SUCCESS)]
        assert set(repo.edges.page_into(3, 1, 9)) == set(repo.edges.into([3]))
        assert repo.edges.page_into(3, 2, 9) == [InEdge(2, 3, On.SUCCESS, None, S.UNSCHEDULED, 0)]
        assert len(repo.edges.page_into(3, 1, 1)) == 1
        dealt = repo.edges.into_handlers([2, 3, 4])
        assert [(edge.prerequisite, edge.dependent) for edge in dealt] == [(1, 3), (1, 3), (1, 4)]
        move(repo, 1, S.SUCCESSFUL)
        assert repo.edges.into_handlers([3, 4]) == repo.edges.into_handlers([]) == []
    with pytest.raises(REFUSED), store.write() as repo:
        repo.edges.add([(1, 404, "success")])


def test_an_attempt_begins_once_and_ends_once(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1)
        task = move(repo, 1, *READY, S.RUNNING, bot="b1")
        task.life = struct_replace(task.life, attempt=1)
        source, task.life = task.state, struct_replace(task.life, state=S.STOPPING)
        repo.tasks.write_moved([(task, source)])
        repo.attempts.add([(1, 1, "b1", "here/s1", "p1", LARGEST, 2, 3, NOW, None)])
        assert repo.attempts.of(1) == [AttemptRow(1, "b1", "here/s1", "p1", LARGEST, 2, 3, NOW, None, None, None, None)]
        assert repo.attempts.leased_by_poll(["b1", "b2"]) == [("b1", "p1", 1)]
        assert repo.tasks.leased_by(["b1", "b2"], 9) == [(1, "b1")]
        assert repo.tasks.leased_by(["b1"], 0) == []
        task.lease_until_ms, task.due_ms, task.stored = LATER, LATER, task.state
        repo.tasks.write_unmoved([task])
        assert repo.tasks.leased_with_session(["b1", "b2"], 9) == [(1, "b1", "here/s1")]
        repo.tasks.end_leases([("b1", "here/s/", "", NOW, NOW + 1), ("b2", "", "", NOW, NOW + 1)])
        repo.tasks.end_leases([("b1", "here/", "here/s1", NOW, NOW + 1)])
        assert repo.tasks.read([1])[0].lease_until_ms == LATER
        repo.tasks.end_leases([("b1", "here/", "", NOW, NOW + 1), ("b2", "", "", NOW, NOW + 1)])
        (over,) = repo.tasks.read([1])
        assert (over.lease_until_ms, over.due_ms) == (NOW, NOW + 1)
        assert repo.attempts.open_of([1, 2]) == {1: (1, "here/s1", LARGEST)}
        for session, fence in (("here/s2", 7), ("here/s3", 8)):
            repo.attempts.adopt([(1, 1, session, fence)])
            assert repo.attempts.open_of([1]) == {1: (1, session, LARGEST)}
        repo.attempts.end([(1, 1, LATER, "fail", "exit_code", 3)])
        assert repo.attempts.open_of([1]) == {}
        repo.attempts.adopt([(1, 1, "here/s4", 9)])
        repo.attempts.add_results([(1, 1, "{}")])
        (attempt,) = repo.attempts.of(1)
        assert (attempt.session, attempt.fence, attempt.claim_fence) == ("here/s3", 8, LARGEST)
        assert (attempt.ended_ms, attempt.signal, attempt.reason, attempt.exit_code) == (LATER, "fail", "exit_code", 3)
        assert repo.attempts.count_lost(1, 2, ["exit_code"]) == 0  # as its bot reported
    with pytest.raises(TransactionConflict), store.write() as repo:
        repo.attempts.end([(1, 1, LATER, "succeed", "done", 0)])


def test_attempts_that_were_lost_for_a_reason_are_counted_by_their_round(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1)
        repo.attempts.add(
            [(1, number, "b1", "s1", "p1", number, 1 + number // 3, 0, NOW, None) for number in (1, 2, 3)]
        )
        reasons = {1: "returned", 2: "bot_lost", 3: "unrenewed"}
        repo.attempts.end([(1, number, LATER, "lose", reason, None) for number, reason in reasons.items()])
        assert repo.attempts.count_lost(1, 1, ["returned", "unrenewed"]) == 1
        assert repo.attempts.count_lost(1, 2, ["returned", "unrenewed"]) == 1
        assert repo.attempts.count_lost(1, 1, ["returned", "bot_lost"]) == 2


# What is kept.


def test_events_are_numbered_read_in_pages_and_published_once(store: Store) -> None:
    happened = encode_fact(encode_transition("waiting", "running", "claim"), 2, 'bot \N{SNOWMAN} "', "r")
    turned = encode_fact(encode_transition(None, "running", None), None, None, None)
    events = [
        EventRow(7, number, 1, NOW, "waiting", "running", "claim", 2, 'bot \N{SNOWMAN} "', "r") for number in (1, 2)
    ]
    with store.write() as repo:
        repo.events.add(
            NOW, [(1, 0, [(7, [happened, happened]), (1, [turned])]), (3, 5, []), (2, 1, [(9, [happened])])]
        )
        repo.events.add(NOW, [(1, 3, [(7, [happened])])])
        assert repo.events.of(7, 0, 1) == events
        assert repo.events.of(7, 1, 1) == events[1:]
        assert [event.number for event in repo.events.of(7, 0, 9)] == [1, 2, 4]
        assert [event.number for event in repo.events.of(7, 2, 9)] == [4]
        assert [(event.subject, event.number) for event in repo.events.in_graph(1, 1, 9)] == [(7, 2), (1, 3), (7, 4)]
        assert [event.number for event in repo.events.in_graph(1, 0, 1)] == [1, 2]
        for graph, count in ((1, 4), (2, 2)):
            add_graph(repo, graph)
            repo.graphs.write_states([(graph, "running", 0, 0, 0, count, NOW)])
        assert repo.events.unpublished(9) == [], "nobody sees a graph that is being loaded"
        for graph in (1, 2):
            repo.graphs.set_loader(graph, None)
        shown = repo.events.unpublished(9)
        assert shown == [
            OutboxRow(1, 2, NOW, 2),
            OutboxRow(1, 3, NOW, 1),
            OutboxRow(1, 4, NOW, 1),
            OutboxRow(2, 2, NOW, 1),
        ]
        assert repo.events.in_graph(1, 2, 1) == [EventRow(1, 3, 1, NOW, None, "running", None, None, None, None)]
        assert repo.events.unpublished(2) == shown[:2]
        repo.events.mark_published([(1, 3)])
        assert repo.events.unpublished(9) == shown[2:]
        repo.events.mark_published([(2, 2), (1, 1)])  # late news takes nothing back
        assert repo.events.unpublished(9) == shown[2:3]


def test_audit_rows_are_kept_in_order_and_responses_for_a_while(store: Store) -> None:
    with store.write() as repo:
        repo.events.add_audits([(NOW, "ann", f"a{n}", 1, "") for n in range(3)])
        assert [row.action for row in repo.events.audits_of(1, 2)] == ["a0", "a1"]
        for subject in (None, 1):
            newest = repo.events.page_audits(subject, 2**63 - 1, 2)
            assert [row.action for _, row in newest] == ["a2", "a1"]
            assert [row.action for _, row in repo.events.page_audits(subject, newest[-1][0], 2)] == ["a0"]
        assert repo.events.page_audits(2, 2**63 - 1, 2) == []
        repo.events.add_answers([("k1", "d1", "x", NOW), ("k2", "d2", "y", LATER), ("k0", "d0", "z", NOW - 1)])
        assert repo.events.answers(["k2", "k1", "k3"]) == {"k1": ("d1", "x"), "k2": ("d2", "y")}
        assert repo.events.delete_old_answers(LATER, 1) == 1
        assert repo.events.answers(["k0", "k1", "k2"]) == {"k1": ("d1", "x"), "k2": ("d2", "y")}
        assert [repo.events.delete_old_answers(LATER, 9) for _ in range(2)] == [1, 0]
        assert repo.events.answers(["k0", "k1", "k2"]) == {"k2": ("d2", "y")}


def test_continuations_stay_in_order_until_they_are_done(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        tell = ("tell", 1, 7, "running", "failed", "", "")
        repo.continuations.add([tell, ("open", 1, None, None, None, "", ""), tell])
        first, second, third = repo.continuations.after(0, 9)
        assert first.id < second.id < third.id
        assert (first.kind, first.graph, first.task, first.source, first.target, first.cursor) == (*tell[:5], 0)
        assert repo.continuations.after(first.id, 1) == [second]
        assert repo.continuations.of_tasks([7, 8]) == [first, third]
        assert repo.continuations.in_graph(1, "tell") == [first, third]
        assert repo.continuations.first(1, "tell") == first
        assert repo.continuations.first(2, "tell") is None
        assert repo.continuations.first(1, "tell", {7}) is None
        assert repo.continuations.first(1, "open", {7}) == second
        repo.continuations.advance(third.id, LARGEST)
        assert repo.continuations.read(third.id) == struct_replace(third, cursor=LARGEST)
        assert repo.continuations.older_than("tell", LARGEST, 9) == [first]
        repo.continuations.delete(first.id)
        assert repo.continuations.read(first.id) is None
        assert [note.id for note in repo.continuations.after(0, 9)] == [second.id, third.id]


def test_a_server_stores_since_when_it_is_up(store: Store) -> None:
    with store.write() as repo:
        repo.servers.save(ServerRow("rack1:8080", NOW, LATER))
        assert repo.servers.all()["rack1:8080"] == ServerRow("rack1:8080", NOW, LATER)
        repo.servers.delete_unseen(LATER)
        assert "rack1:8080" in repo.servers.all()
        repo.servers.delete_unseen(Millis(LATER + 1))
        assert "rack1:8080" not in repo.servers.all()


def test_only_a_database_that_servers_share_has_a_time(store: Store) -> None:
    with store.write() as repo:
        moments = [repo.servers.database_time() for _ in range(3)]
    if store.url.startswith("sqlite"):
        assert moments == [None, None, None]
    else:
        assert moments == sorted(moment for moment in moments if moment is not None)
        assert moments[0] is not None
        assert moments[0] > NOW


# The fleet.


def test_the_name_of_a_bot_belongs_to_one_pool_until_it_is_released(store: Store) -> None:
    with store.write() as repo:
        repo.bots.begin_sessions([("b1", "p", "s1", "", 4, NOW, NOW, "", None, None, 0)])
        repo.bots.begin_sessions([("b1", "q", "s2", "s1", 4, NOW, NOW, "", None, None, 0)])
        assert repo.bots.callers(["b1"]) == {"b1": CallingBot("s1", "", False, 0, "p")}
        repo.bots.release_names(["b1"])
        assert repo.bots.callers(["b1"])["b1"].pool is None
        repo.bots.begin_sessions([("b1", "q", "s2", "s1", 4, NOW, NOW, "", None, None, 0)])
        assert repo.bots.callers(["b1"]) == {"b1": CallingBot("s2", "", False, 2, "q")}


def test_the_order_to_terminate_ends_when_a_new_bot_begins(store: Store) -> None:
    with store.write() as repo:
        repo.bots.begin_sessions([(id, "p", "s1", "", 4, NOW, NOW, "rack1:8080", None, None, 0) for id in ("b1", "b2")])
        repo.bots.set_dimensions([(id, encode_dimensions(())) for id in ("b1", "b2")])
        repo.bots.set_settings([(id, None, None, 0, 1) for id in ("b1", "b2")])
        repo.bots.clear_terminations(["b1"])
        assert {id: bot.facts.ending for id, bot in repo.bots.read(["b1", "b2"]).items()} == {"b1": False, "b2": True}


def test_a_bot_belongs_to_the_server_that_it_last_spoke_to(store: Store) -> None:
    with store.write() as repo:
        repo.bots.begin_sessions([(id, "p", "s1", "", 4, NOW, NOW, "rack1:8080", None, None, 0) for id in ("b1", "b2")])
        repo.bots.record_polls([("b2", "p1", LATER, "rack2:8080")])
        assert repo.bots.last_servers(["b1", "b2", "b3"]) == {"b1": "rack1:8080", "b2": "rack2:8080"}
        assert repo.bots.last_servers([]) == {}


def test_a_bot_has_its_own_and_an_admins_settings(store: Store) -> None:
    with store.write() as repo:
        ill = ("b2", "p", "s1", "", 1, NOW, LATER, "", "ill", None, 1)
        repo.bots.begin_sessions([("b1", "p", "s1", "", 4, NOW, NOW, "", None, None, 0), ill])
        repo.bots.set_dimensions([("b1", encode_dimensions((("os", ("linux",)),))), ("b2", encode_dimensions(()))])
        assert set(repo.bots.read(["b1", "b2", "b3"])) == {"b1", "b2"}
        repo.bots.record_polls([("b1", "p9", LATER, "")])
        assert repo.bots.callers(["b1", "b3"]) == {"b1": CallingBot("s1", "p9", False, 0, "p")}
        repo.bots.set_settings([("b1", "unfit", "repairs", 1, 0)])
        bot = repo.bots.read(["b1"])["b1"]
        assert (bot.session, bot.recent_polls, bot.facts.slots, bot.facts.last_seen_ms) == ("s1", "p9", 4, LATER)
        assert bot.facts.dimensions == (("os", ("linux",)),)
        assert (bot.facts.quarantined, bot.facts.maintenance, bot.facts.draining) == ("unfit", "repairs", True)
        repo.bots.begin_sessions([("b1", "p", "s2", "s1", 2, 0, NOW, "", None, None, 0)])
        repo.bots.set_dimensions([("b1", encode_dimensions(()))])
        bot = repo.bots.read(["b1"])["b1"]
        assert (bot.session, bot.previous_sessions, bot.recent_polls, bot.facts.slots, bot.facts.dimensions) == (
            "s2",
            "s1",
            "",
            2,
            (),
        )
        assert repo.bots.silent(LATER, 9) == ["b1"]
        repo.bots.mark_missing(["b1"])
        assert repo.bots.silent(Millis(LATER + 1), 9) == ["b2"]
        repo.bots.end_sessions(["b2"])
        assert repo.bots.callers(["b1", "b2"]) == {
            "b1": CallingBot("s2", "", True, 2, "p"),
            "b2": CallingBot("s1", "", False, 1, "p"),
        }
        assert repo.bots.silent(Millis(LATER + 1), 9) == []
        fleet = repo.bots.read_all()
        assert [(one.facts.id, one.facts.missing, one.facts.terminated) for one in fleet] == [
            ("b1", True, False), ("b2", False, True),
        ]  # fmt: skip


def test_the_fleet_counts_what_each_bot_runs(store: Store) -> None:
    with store.write() as repo:
        repo.bots.begin_sessions([(bot, "p", "s1", "", 4, NOW, NOW, "", None, None, 0) for bot in ("b1", "b2")])
        repo.bots.set_dimensions([(bot, "[]") for bot in ("b1", "b2")])
        add_graph(repo)
        add_tasks(repo, 1, 2)
        for id in (1, 2):
            move(repo, id, *READY, S.RUNNING, bot="b1")
        assert [(bot.facts.id, bot.facts.busy) for bot in repo.bots.read_all()] == [("b1", 2), ("b2", 0)]


def test_the_events_of_a_bot_come_newest_first(store: Store) -> None:
    with store.write() as repo:
        repo.bots.begin_sessions([("b1", "p", "s1", "", 4, NOW, NOW, "", None, None, 0)])
        repo.bots.set_dimensions([("b1", "[]")])
        repo.bots.add_events([("b1", id, NOW, "connected", None, None, "") for id in ("ff", "fe", "fd")])
        repo.bots.count_events([("b1", 3)])
        assert [row[1] for row in repo.bots.events("b1", 2)] == ["fd", "fe"]
        assert repo.bots.read(["b1"])["b1"].events == 3


def test_queues_are_numbered_in_the_order_of_their_commits(store: Store) -> None:
    with store.write() as repo:
        assert repo.queues.lock_count() == 0
        repo.queues.add([(LARGEST, 1, 7, "any", "p", '[["a",["b"]]]', 0)], 1)
    with store.write() as repo:
        assert repo.queues.lock_count() == 1
        repo.queues.add([(1, 2, 7, "any", "", "[]", 0), (2, 3, 8, "any", "", "[ ]", 0)], 3)
    with store.read() as repo:
        assert [queue.number for queue in repo.queues.after(-1)] == [0, 1, 2, 3]
        (queue,) = repo.queues.after(0)[:1]
        assert (queue.id, queue.hash, queue.root, queue.pool, queue.dimensions) == (
            LARGEST, 7, "any", "p", (("a", ("b",)),),
        )  # fmt: skip
        assert repo.queues.with_dimensions(["[]", "nothing"]) == {"[]": (1, 0)}
        assert sorted(repo.queues.with_hashes([7, 9])) == [(1, 7), (LARGEST, 7)]


def test_a_bot_serves_a_queue_once(store: Store) -> None:
    with store.write() as repo:
        repo.bots.begin_sessions([("b1", "p", "s1", "", 1, NOW, NOW, "", None, None, 0)])
        repo.bots.add_queues([("b1", 0), ("b1", 0)])
        repo.bots.add_queues([("b1", 0)])
        assert len(repo.doctor.bot_queues("", -1, 9)) == 1
        repo.bots.drop_queues(["b1", "b2"])
        assert repo.doctor.bot_queues("", -1, 9) == []


# Admission.


def test_the_admission_lock_is_fenced_by_its_epoch(store: Store) -> None:
    with store.write() as repo:
        assert repo.admission.read_lock() == AdmissionLock(0, None, None)
        repo.admission.take_lock(1, "me", LATER)
        assert repo.admission.extend_lock(1, LATER)
        assert not repo.admission.extend_lock(0, LATER)
        repo.admission.release_lock(0)
        assert repo.admission.read_lock() == AdmissionLock(1, "me", LATER)
        repo.admission.release_lock(1)
        assert repo.admission.read_lock() == AdmissionLock(1, None, None)
        assert not repo.admission.extend_lock(1, LATER)


def test_dirty_marks_are_read_in_order_and_deleted_once(store: Store) -> None:
    with store.write() as repo:
        repo.admission.mark_dirty([7, None, 7])
        stirs = repo.admission.dirty(0, 9)
        assert [task for _, task in stirs] == [7, None, 7]
        assert repo.admission.dirty(stirs[0][0], 1) == stirs[1:2]
        repo.admission.delete_dirty([stirs[0][0], stirs[1][0]])
        assert repo.admission.dirty(0, 9) == stirs[2:]


def test_contenders_are_the_tasks_that_need_admission(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        repo.queues.add([(8, 1, 8, "any", "p", "a", 0)], 1)
        add_tasks(repo, 1, 2, 3, 4, queue_id=8, is_constrained=1, weight=2)
        for id in (1, 2, 3, 4):
            move(repo, id, S.PENDING)
        tasks = repo.tasks.get([1, 2, 3]).values()
        for task in tasks:
            task.needs_admission = True
        repo.tasks.write_unmoved(list(tasks))
        move(repo, 3, S.WAITING)
        assert [row.id for row in repo.admission.contenders(S.PENDING, 1, 9)] == [2]
        assert [row.id for row in repo.admission.contenders(S.PENDING, 0, 1)] == [1]
        (row,) = repo.admission.contenders(S.WAITING, 0, 9)
        assert (row.id, row.state, row.weight, row.queue, row.is_constrained) == (3, S.WAITING, 2, 8, True)
        assert sorted(row.id for row in repo.admission.contenders_among([1, 4, 3])) == [1, 3]
        assert repo.admission.tasks_without_admission("p", [S.PENDING, S.WAITING], 9) == [4]
        assert repo.admission.tasks_without_admission("q", [S.PENDING, S.WAITING], 9) == []


def test_pools_and_limits_can_be_configured_again(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2)
        repo.tasks.add_mutexes([(1, "b", "p"), (1, "a", None), (2, "a", None)])
        repo.tasks.add_limits([(1, "y", 2), (1, "x", 1)])
        assert repo.admission.mutexes_of([1]) == {1: (Mutex("a"), Mutex("b", "p"))}
        assert repo.admission.limits_of([1, 2]) == {1: (("x", 1), ("y", 2))}
        for total in (3, 5):
            repo.admission.set_limit("x", total)
            repo.admission.set_pool(PoolRow("p", total, False))
        repo.admission.set_pool(PoolRow("live", None, True))
        assert repo.admission.named_limits() == {"x": 5}
        assert repo.admission.pools() == [PoolRow("live", None, True), PoolRow("p", 5, False)]
        assert repo.admission.locked_pools() == repo.admission.pools()
        for _ in range(2):
            repo.admission.set_stake_after("a", None)
            repo.admission.set_stake_after("b", 5)
        assert repo.admission.stake_after() == {"a": None, "b": 5}
        repo.admission.set_stake_after("a", 0)
        assert repo.admission.stake_after() == {"a": 0, "b": 5}


def test_the_latest_hold_of_a_task_is_kept(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2)
        repo.admission.set_holds([(1, "mutex", "door", 7, NOW, NOW), (2, "no_bot", None, None, None, None)])
        repo.admission.set_holds([(1, "capacity", "p", None, LATER, None)])
        assert repo.admission.holds_of([1, 3]) == {1: HoldRow(1, Reason.CAPACITY, "p", None, LATER, NOW)}
        repo.admission.set_holds([(1, "mutex", "door", 7, LATER, LATER)])
        assert repo.admission.holds_of([1]) == {1: HoldRow(1, Reason.MUTEX, "door", 7, LATER, NOW)}
        repo.admission.delete_holds([1, 3])
        assert set(repo.admission.holds_of([1, 2])) == {2}


def test_tasks_are_listed_by_their_mutexes(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2, 3, is_constrained=1)
        repo.tasks.add_mutexes([(1, "door", None), (2, "door", "p"), (3, "door", None)])
        for task in (move(repo, 1, *READY), move(repo, 2, S.PENDING)):
            task.needs_admission = True
            repo.tasks.write_unmoved([task])
        repo.admission.set_holds([(2, "mutex", "door", 1, NOW, NOW)])
        (waits,), (held,) = (repo.admission.mutexes_in_state(state, 9) for state in (S.WAITING, S.PENDING))
        assert (waits.key, waits.party, waits.task, waits.graph, waits.state) == ("door", None, 1, 1, "waiting")
        assert (held.task, held.party, held.reason, held.held_at, held.mutex_since_ms) == (2, "p", "mutex", "door", NOW)
        assert repo.admission.mutexes_in_state(S.PENDING, 0) == []


def test_a_prefetched_query_gives_the_same_result(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        repo.queues.add([(8, 1, 8, "any", "p", "[]", 0)], 1)
        add_tasks(repo, 1, 2, awaited=1)
        repo.tasks.add_definitions([(id, 1, f"t{id}", "{}", None, "", "") for id in (1, 2)])
        repo.edges.add([(1, 2, "success")])
        repo.attempts.add_results([(1, 0, "7")])
        repo.bots.begin_sessions([("b", "p", "s", "", 1, NOW, NOW, "", None, None, 0)])
        repo.bots.set_dimensions([("b", "[]")])
    with store.write() as repo:
        asked = looked(repo)
    with store.write() as repo:
        repo.bots.prefetch_callers(["b"])
        repo.tasks.prefetch([2, 1])
        repo.graphs.prefetch([1])
        repo.edges.prefetch([2, 1], 9)
        repo.queues.prefetch(0)
        repo.output.prefetch_inputs([2])
        repo.admission.prefetch_pools()
        assert looked(repo) == asked
    assert asked[0] == {"b": CallingBot("s", "", False, 0, "p")}
    assert asked[3] == [EdgeRow(1, 2, On.SUCCESS, None)]
    assert asked[-2] == [(2, "t1", "7")]


def looked(repo: Repo) -> list[object]:
    """All queries that can be prefetched."""
    return [
        repo.bots.callers(["b"]),
        repo.tasks.get([1, 2]),
        repo.graphs.get(1),
        repo.edges.out_of([1, 2], 9),
        repo.queues.after(0),
        repo.output.inputs([2]),
        repo.admission.locked_pools(),
    ]


def test_an_unused_prefetch_does_no_harm(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        repo.tasks.prefetch([404])
        add_tasks(repo, 1)
        assert [task.id for task in repo.tasks.read([1])] == [1]
