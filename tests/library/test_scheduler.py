"""Fetch, deliver, fail: what py3-sched promises, and what it promised and did not keep."""

import subprocess
import sys
from typing import Any

import pytest

from taskyard import Dag, DagError, Scheduler, SchedulerError
from taskyard.local.dag import Edge, Node
from tests.each_row import each_row

#: The graph of py3-sched's own tests.
REFERENCE: list[Edge] = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)]


def scheduler_of(*edges: Edge, nodes: tuple[Node, ...] = ()) -> Scheduler:
    return Scheduler(Dag.from_edges(edges, nodes))


def deliver(scheduler: Scheduler[Any], *tasks: Node) -> None:
    for task in tasks:
        scheduler.fetch_task(task)
        scheduler.deliver_task(task)


def fail(scheduler: Scheduler, *tasks: Node) -> None:
    for task in tasks:
        scheduler.fetch_task(task)
        scheduler.fail_task(task)


# The tests of the reference


def test_each_pool_that_is_delivered_opens_the_next() -> None:
    scheduler = scheduler_of(*REFERENCE)
    pools = []
    while pool := set(scheduler.available_tasks):
        pools.append(pool)
        scheduler.fetch_tasks(scheduler.available_tasks)
        scheduler.deliver_tasks(scheduler.available_tasks)
    assert pools == [{4}, {3}, {1, 2}, {0}]


def test_a_failed_prerequisite_blocks_and_a_delivered_one_does_not() -> None:
    scheduler = scheduler_of(*REFERENCE)
    deliver(scheduler, 4, 3, 1)
    assert scheduler.blocked_tasks == {}
    fail(scheduler, 2)
    assert scheduler.blocked_tasks.keys() == {0}
    assert scheduler.blocked_tasks[0] == {2}


def test_a_failed_task_that_is_fetched_again_and_delivered_unblocks() -> None:
    scheduler = scheduler_of(*REFERENCE)
    deliver(scheduler, 4, 3, 1)
    fail(scheduler, 2)
    scheduler.fetch_task(2, failed_ok=True)
    assert scheduler.deliver_task(2) == [0]
    assert scheduler.blocked_tasks.keys() == set()
    assert scheduler.available_tasks == {0}


def test_what_is_behind_a_blocked_task_is_unknown_and_stranded() -> None:
    scheduler = scheduler_of((0, 1), (1, 2), (1, 4), (2, 3), (4, 3))
    deliver(scheduler, 3)
    fail(scheduler, 2, 4)
    assert scheduler.blocked_tasks == {1: {2, 4}}
    assert (scheduler.unknown_tasks, scheduler.stranded_tasks) == ([0], {0, 1})


def test_a_reset_scheduler_is_as_new() -> None:
    scheduler = scheduler_of(*REFERENCE)
    deliver(scheduler, 4, 3)
    fail(scheduler, 2)
    scheduler.reset()
    assert (scheduler.available_tasks, list(scheduler.available_tasks), len(scheduler.available_tasks)) == ({4}, [4], 1)
    assert (scheduler.blocked_tasks, set(scheduler.unknown_tasks)) == ({}, {0, 1, 2, 3, 4})
    deliver(scheduler, 4, 3, 2, 1, 0)
    assert not scheduler.available_tasks


# What the reference got wrong


def test_two_failed_prerequisites_that_are_mended_leave_nothing_blocked() -> None:
    scheduler = scheduler_of(("top", "a"), ("top", "b"))
    fail(scheduler, "a", "b")
    assert scheduler.blocked_tasks == {"top": {"a", "b"}}
    for task, left in (("a", {"top": {"b"}}), ("b", {})):
        scheduler.fetch_task(task, failed_ok=True)
        assert scheduler.blocked_tasks == left
        scheduler.deliver_task(task)
    assert (scheduler.blocked_tasks, scheduler.available_tasks) == ({}, {"top"})


def test_a_task_that_is_not_ready_cannot_be_fetched() -> None:
    scheduler = scheduler_of(("a", "b"))
    with pytest.raises(SchedulerError) as refused:
        scheduler.fetch_task("a")
    said = "cannot fetch task 'a': it is not ready (a prerequisite of it is not delivered); expected it to be ready"
    assert str(refused.value) == said
    deliver(scheduler, "b", "a")


def test_a_scheduler_error_is_a_runtime_error_and_a_dag_error_a_value_error() -> None:
    assert issubclass(SchedulerError, RuntimeError)
    assert issubclass(DagError, ValueError)


@pytest.mark.parametrize("length", [2, 3, 50, 51, 100_000])
def test_a_graph_with_a_cycle_is_refused_with_the_whole_cycle(length: int) -> None:
    ring = [(node, (node + 1) % length) for node in range(length)]
    with pytest.raises(SchedulerError, match=r"the graph has a cycle: 0 -> 1 -> ") as refused:
        scheduler_of(*ring, ("free", "too"), ("behind", 0))
    assert refused.value.cycle == tuple(range(length))
    assert str(refused.value).endswith(f"{length - 1} -> 0" if length <= 50 else f"({length - 50} more) -> 0")


# Fetching again


def test_a_task_blocks_again_when_it_fails_again() -> None:
    scheduler = scheduler_of(("a", "b"))
    fail(scheduler, "b")
    scheduler.fetch_task("b", failed_ok=True)
    assert (scheduler.blocked_tasks, scheduler.available_tasks) == ({}, {"b"})
    scheduler.fail_task("b", is_exception=True)
    assert (scheduler.blocked_tasks, scheduler.available_tasks) == ({"a": {"b"}}, set())


def test_unblocked_is_not_available() -> None:
    scheduler = scheduler_of(("top", "a"), ("top", "b"))
    fail(scheduler, "a")
    scheduler.fetch_task("a", failed_ok=True)
    assert scheduler.deliver_task("a") == []
    assert ("top" in scheduler.available_tasks, "top" in scheduler.blocked_tasks) == (False, False)


def test_a_repeated_edge_blocks_and_mends_once() -> None:
    scheduler = scheduler_of(("a", "b"), ("a", "b"))
    fail(scheduler, "b")
    assert scheduler.blocked_tasks == {"a": {"b"}}
    scheduler.fetch_task("b", failed_ok=True)
    assert (scheduler.blocked_tasks, scheduler.deliver_task("b")) == ({}, ["a"])


def test_a_task_that_failed_often_is_available_once() -> None:
    scheduler = scheduler_of(nodes=("a", "b"))
    for _ in range(100):
        scheduler.fetch_task("a", failed_ok=True)
        scheduler.fail_task("a")
    scheduler.fetch_task("a", failed_ok=True)
    assert (list(scheduler.available_tasks), len(scheduler.available_tasks)) == (["b", "a"], 2)


# The message of an illegal call


@each_row(
    ("call", "says"),
    [
        ("fetch_task('gone')", "cannot fetch task 'gone': there is no such task"),
        ("deliver_task('gone')", "cannot deliver task 'gone': there is no such task"),
        ("fail_task('gone')", "cannot fail task 'gone': there is no such task"),
        ("deliver_tasks(['out', 'gone'])", "cannot deliver task 'gone': there is no such task"),
        ("fetch_task('out')", "cannot fetch task 'out': it is fetched; pass fetched_ok=True to allow it"),
        ("fetch_task('out', failed_ok=True)", "it is fetched; pass fetched_ok=True to allow it"),
        ("fetch_task('bad')", "cannot fetch task 'bad': it is failed; pass failed_ok=True to allow it"),
        ("fetch_task('bad', fetched_ok=True)", "it is failed; pass failed_ok=True to allow it"),
        ("fetch_task('done', fetched_ok=True)", "cannot fetch task 'done': it is delivered; expected it to be ready"),
        ("deliver_task('ready')", "cannot deliver task 'ready': it is ready; pass nofetch_ok=True to allow it"),
        ("deliver_task('done')", "cannot deliver task 'done': it is delivered; pass delivered_ok=True to allow it"),
        ("deliver_task('done', nofetch_ok=True)", "it is delivered; pass delivered_ok=True to allow it"),
        ("deliver_task('bad')", "cannot deliver task 'bad': it is failed; expected it to be fetched"),
        ("fail_task('ready')", "cannot fail task 'ready': it is ready; pass nofetch_ok=True to allow it"),
        ("fail_task('bad')", "cannot fail task 'bad': it is failed; expected it to be fetched"),
        ("fail_task('done', nofetch_ok=True)", "cannot fail task 'done': it is delivered; expected it to be fetched"),
        ("fetch_task('stuck')", "cannot fetch task 'stuck': it is blocked by 'bad'; expected it to be ready"),
        ("fail_tasks(['out', 'out'])", "cannot fail task 'out': it is failed; expected it to be fetched"),
    ],
)
def test_an_illegal_call_names_the_state_and_the_legal_calls_and_changes_nothing(call: str, says: str) -> None:
    scheduler = scheduler_of(("stuck", "bad"), ("stuck", "done"), nodes=("ready", "out"))
    scheduler.fetch_task("out")
    deliver(scheduler, "done")
    fail(scheduler, "bad")
    with pytest.raises(SchedulerError) as refused:
        eval(f"scheduler.{call}", {"scheduler": scheduler})  # noqa: S307
    assert says in str(refused.value)
    assert (scheduler.available_tasks, scheduler.blocked_tasks) == ({"ready", "out"}, {"stuck": {"bad"}})
    assert scheduler.unknown_tasks == ["ready"]


# Several at once


def test_several_are_fetched_all_or_none() -> None:
    scheduler = scheduler_of(nodes=("a", "b", "c"))
    scheduler.fetch_task("c")
    with pytest.raises(SchedulerError, match="'c': it is fetched"):
        scheduler.fetch_tasks(["a", "b", "c"])
    assert scheduler.unknown_tasks == ["a", "b"]


def test_several_are_delivered_all_or_none() -> None:
    scheduler = scheduler_of(("top", "a"), nodes=("b",))
    scheduler.fetch_task("a")
    with pytest.raises(SchedulerError, match="'b': it is ready"):
        scheduler.deliver_tasks(["a", "b"])
    assert scheduler.available_tasks == {"a", "b"}
    assert scheduler.deliver_tasks(["a", "b"], nofetch_ok=True) == ["top"]


def test_several_failures_happen_all_or_none() -> None:
    scheduler = scheduler_of(("top", "a"), nodes=("b",))
    scheduler.fetch_task("a")
    with pytest.raises(SchedulerError, match="'b': it is ready"):
        scheduler.fail_tasks(["a", "b"])
    assert scheduler.blocked_tasks == {}
    scheduler.fail_tasks(["a", "b"], nofetch_ok=True, is_exception=True)
    assert (scheduler.blocked_tasks, scheduler.available_tasks) == ({"top": {"a"}}, set())


def test_a_task_twice_in_one_row_is_called_twice() -> None:
    scheduler = scheduler_of(nodes=("a",))
    with pytest.raises(SchedulerError, match="it is fetched"):
        scheduler.fetch_tasks(["a", "a"])
    scheduler.fetch_tasks(["a", "a"], fetched_ok=True)
    with pytest.raises(SchedulerError, match="it is delivered"):
        scheduler.deliver_tasks(["a", "a"])
    assert scheduler.deliver_tasks(["a", "a"], delivered_ok=True) == []


def test_a_whole_chain_is_delivered_in_one_row() -> None:
    scheduler = scheduler_of(("d", "c"), ("c", "b"), ("b", "a"))
    with pytest.raises(SchedulerError, match="'c': it is not ready"):
        scheduler.deliver_tasks(["a", "c", "b"], nofetch_ok=True)
    assert scheduler.available_tasks == {"a"}
    assert scheduler.deliver_tasks(["a", "b", "c"], nofetch_ok=True) == ["d"]
    assert list(scheduler.available_tasks) == ["d"]


def test_a_row_may_be_a_generator_or_a_view_of_the_scheduler_itself() -> None:
    scheduler = scheduler_of(("top", "a"), ("top", "b"))
    scheduler.fetch_tasks(task for task in scheduler.available_tasks)
    scheduler.fail_tasks(scheduler.available_tasks)
    scheduler.fetch_tasks(scheduler.blocked_tasks["top"], failed_ok=True)
    assert scheduler.deliver_tasks(scheduler.available_tasks) == ["top"]


def test_the_list_that_a_delivery_returns_is_the_callers_own() -> None:
    wide = [("top", f"task-{n}") for n in range(40)]
    scheduler = Scheduler(Dag.from_edges([(src, "root") for _, src in wide] + wide))
    scheduler.fetch_task("root")
    opened = scheduler.deliver_task("root")
    assert len(opened) == 40
    opened[0] = "top"
    with pytest.raises(SchedulerError, match="cannot fetch task 'top': it is not ready"):
        scheduler.fetch_tasks(opened)


# The order of deliveries


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_leaving_the_order_in_which_tasks_opened_loses_nothing(backwards: bool, kept: int) -> None:
    scheduler = scheduler_of(("x", "a"), ("x", "b"), ("y", "b"), ("y", "c"), ("z", "x"), ("z", "y"), ("z", "a"))
    ran: list[Node] = []
    while waiting := list(scheduler.available_tasks):
        task = waiting[-1] if backwards and len(ran) >= kept else waiting[0]
        deliver(scheduler, task)
        ran.append(task)
    assert sorted(map(str, ran)) == ["a", "b", "c", "x", "y", "z"]
    for src, dst in [("x", "a"), ("x", "b"), ("y", "b"), ("y", "c"), ("z", "x"), ("z", "y")]:
        assert ran.index(dst) < ran.index(src)


@pytest.mark.parametrize("count", [255, 256, 10_000])
def test_a_task_may_have_more_prerequisites_than_a_byte_counts(count: int) -> None:
    scheduler = Scheduler(Dag.from_edges([("top", task) for task in range(count)]))
    for task in range(count - 1, 0, -1):
        scheduler.fetch_task(task)
        assert scheduler.deliver_task(task) == []
    scheduler.fetch_task(0)
    assert scheduler.deliver_task(0) == ["top"]


# The snapshot


@pytest.mark.parametrize("deepcopy", [True, False])
def test_later_changes_of_the_graph_are_not_seen(deepcopy: bool) -> None:
    dag = Dag.from_edges([("a", "b")])
    scheduler = Scheduler(dag, deepcopy=deepcopy)
    dag.add_node("c")
    dag.add_edge("b", "c")
    dag.del_edge("a", "b")
    assert (scheduler.available_tasks, set(scheduler.unknown_tasks)) == ({"b"}, {"a", "b"})
    assert Scheduler(dag).available_tasks == {"a", "c"}


def test_two_schedulers_of_one_graph_do_not_touch_each_other() -> None:
    dag = Dag.from_edges([("a", "b")])
    one, other = Scheduler(dag), Scheduler(dag)
    deliver(one, "b")
    assert (one.available_tasks, other.available_tasks) == ({"a"}, {"b"})


def test_an_empty_graph_has_nothing_to_do() -> None:
    scheduler = Scheduler(Dag())
    assert (scheduler.available_tasks, scheduler.blocked_tasks, scheduler.unknown_tasks) == (set(), {}, [])
    assert scheduler.deliver_tasks([]) == []


# The package


def test_importing_the_package_brings_nothing_until_it_is_used() -> None:
    script = (
        "import sys, taskyard; early = {name for name in sys.modules if name.startswith('taskyard.')};"
        "taskyard.Scheduler(taskyard.Dag());"
        "print(early, 'taskyard.local' in sys.modules, hasattr(taskyard, 'nothing'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["set()", "True", "False"]


def test_a_scheduler_of_anything_but_a_dag_is_refused() -> None:
    with pytest.raises(TypeError) as refused:
        Scheduler([("a", "b")])  # type: ignore[arg-type]
    assert str(refused.value) == "a Scheduler takes a Dag, such as Dag.from_edges(edges) makes, not list"
