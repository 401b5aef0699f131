"""Views are live, read-only, and safe to iterate while they change."""

import pytest

from taskyard import Dag, Scheduler


def test_the_views_behave_as_sets_and_mappings() -> None:
    scheduler = Scheduler(Dag.from_edges([("top", "a"), ("top", "b")], ["c"]))
    available, blocked = scheduler.available_tasks, scheduler.blocked_tasks
    assert {"a", "b", "c"} == available
    assert available & {"a", "x"} == {"a"}
    assert available | {"x"} == {"a", "b", "c", "x"}
    assert {"a"} < available
    assert "unheard of" not in available
    scheduler.fetch_tasks("ab")
    scheduler.fail_tasks("ab")
    assert (available, repr(available)) == ({"c"}, "AvailableTasks({'c'})")
    assert (dict(blocked), len(blocked), "c" in blocked) == ({"top": {"a", "b"}}, 1, False)
    assert (blocked["top"] - {"a"}, len(blocked["top"]), "c" in blocked["top"]) == ({"b"}, 2, False)
    with pytest.raises(KeyError):
        blocked["c"]
    with pytest.raises(KeyError):
        blocked["unheard of"]


def test_the_views_of_nothing_say_so() -> None:
    scheduler = Scheduler(Dag())
    assert (repr(scheduler.available_tasks), repr(scheduler.blocked_tasks)) == (
        "AvailableTasks({})",
        "BlockedTasks({})",
    )


def test_the_views_cannot_be_changed() -> None:
    scheduler = Scheduler(Dag.from_edges([("top", "a")]))
    for view in (scheduler.available_tasks, scheduler.blocked_tasks):
        assert not {"add", "remove", "discard", "pop", "clear", "update", "__setitem__", "__delitem__"} & set(dir(view))


def test_a_view_is_live() -> None:
    scheduler = Scheduler(Dag.from_edges([("top", "a"), ("top", "b")]))
    available, blocked = scheduler.available_tasks, scheduler.blocked_tasks
    scheduler.fetch_tasks("ab")
    scheduler.fail_task("a")
    causes = blocked["top"]
    scheduler.fail_task("b")
    assert (available, causes) == (set(), {"a", "b"})
    scheduler.fetch_tasks("ab", failed_ok=True)
    assert (causes, blocked) == (set(), {})
    scheduler.deliver_tasks("ab")
    assert available == {"top"}


def test_tasks_are_available_in_the_order_they_became_so() -> None:
    scheduler = Scheduler(Dag.from_edges([("x", "c"), ("y", "a")], "abc"))
    for task in "ca":
        scheduler.deliver_task(task, nofetch_ok=True)
    assert list(scheduler.available_tasks) == ["b", "x", "y"]


def test_an_iteration_leaves_out_tasks_that_left_and_those_that_came_later() -> None:
    scheduler = Scheduler(Dag.from_edges([("late", "a")], "abc"))
    walked = []
    for task in scheduler.available_tasks:
        walked.append(task)
        if task == "a":
            scheduler.deliver_tasks("ab", nofetch_ok=True)
    assert walked == ["a", "c"]
    assert list(scheduler.available_tasks) == ["c", "late"]


def test_a_walk_survives_the_tidying_of_what_it_walks_on() -> None:
    tasks = list(range(1_000))
    scheduler = Scheduler(Dag.from_edges([], tasks))
    walked = []
    for task in scheduler.available_tasks:
        walked.append(task)
        scheduler.deliver_task(task, nofetch_ok=True)
        assert list(scheduler.available_tasks) == tasks[len(walked) :]
    assert walked == tasks


def test_a_walk_over_what_is_blocked_may_unblock_it() -> None:
    scheduler = Scheduler(Dag.from_edges([(f"top-{task}", task) for task in "abc"]))
    scheduler.fail_tasks("abc", nofetch_ok=True)
    for top in scheduler.blocked_tasks:
        for cause in scheduler.blocked_tasks[top]:
            scheduler.fetch_task(cause, failed_ok=True)
    assert (scheduler.blocked_tasks, scheduler.available_tasks) == ({}, {"a", "b", "c"})


@pytest.mark.parametrize("end", [0, -1])
def test_taking_one_available_task_after_the_other_does_not_get_slower(end: int) -> None:
    """With one step per stale entry and call this would take billions of steps, and time out."""
    count = 100_000
    scheduler = Scheduler(Dag.from_edges([(task + count, task) for task in range(count)]))
    taken = 0
    while scheduler.available_tasks:
        task = next(iter(scheduler.available_tasks))
        scheduler.fetch_task(task)
        if end:
            scheduler.fail_task(task)
        else:
            scheduler.deliver_task(task)
        taken += 1
    assert taken == (count if end else 2 * count)


def test_one_task_that_stays_does_not_make_every_iteration_longer() -> None:
    """The oldest task is never delivered while a long chain runs behind it. Full iterations would time out."""
    count = 100_000
    scheduler = Scheduler(Dag.from_edges([(task + 1, task) for task in range(count)], ["stays"]))
    for task in range(count):
        assert list(scheduler.available_tasks) == ["stays", task]
        scheduler.deliver_task(task, nofetch_ok=True)
