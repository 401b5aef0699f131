"""The critical path of a graph, in the past and as a forecast, against a slow and obvious oracle."""

from collections.abc import Mapping
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from taskyard.core.critical_path import (
    Before,
    Coming,
    Forecast,
    Spell,
    decisive,
    forecast,
    ran_ms,
    remaining_ms,
    typical_ms,
)
from taskyard.core.states import Join, On, State

S = State
WAITS, RUNS, BEHIND, BLOCKED = S.WAITING, S.RUNNING, S.UNSCHEDULED, S.BLOCKED
Edges = list[tuple[int, int, On]]
Tasks = dict[int, Coming]


# The oracle: every path by itself, by recursion.


def runs(task: int, tasks: Tasks, edges: Edges) -> bool | None:
    """Whether a task will run; None if it is stuck."""
    coming = tasks[task]
    if coming.state is BLOCKED:
        return None
    if coming.state is not BEHIND:
        return True
    into = [(on, runs(one, tasks, edges)) for one, dependent, on in edges if dependent == task]
    met = [will is True and on is not On.FAILURE for on, will in into]
    if all(met) if coming.join is Join.ALL else any(met) or not met:
        return True
    return None if any(will is None for _, will in into) else False


def end(task: int, tasks: Tasks, edges: Edges) -> int:
    """When a task ends that is going to run."""
    coming = tasks[task]
    before = [one for one, dependent, on in edges if dependent == task and on is not On.FAILURE]
    ends = [end(one, tasks, edges) for one in before if runs(one, tasks, edges)] if coming.state is BEHIND else []
    begins = (min(ends) if coming.join is Join.ANY else max(ends)) if ends else 0
    takes = coming.takes_ms or 0
    left = max(0, takes - coming.ran_ms) if coming.state in (S.RUNNING, S.STOPPING) else takes
    return max(begins, coming.pause_ms) + left


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Tasks, Edges]:
    count = draw(st.integers(0, 7))
    some = st.integers(0, 5)
    states = st.sampled_from([BEHIND, BEHIND, BEHIND, WAITS, RUNS, BLOCKED, S.PENDING, S.STOPPING])
    coming = st.builds(Coming, states, st.sampled_from(Join), st.none() | some, some, st.sampled_from([0, 0, 0, 7]))
    tasks = {id: draw(coming) for id in draw(st.permutations(range(count)))}
    pairs = [(one, other) for one in range(count) for other in range(one + 1, count)]
    kinds = st.sampled_from([On.SUCCESS, On.SUCCESS, On.ALWAYS, On.FAILURE])
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=10)) if pairs else []
    return tasks, [(*pair, draw(kinds)) for pair in chosen]


@given(graphs())
def test_a_forecast_equals_that_of_an_oracle_that_follows_every_path(drawn: tuple[Tasks, Edges]) -> None:
    tasks, edges = drawn
    shown = forecast(tasks, edges)
    will = {task: runs(task, tasks, edges) for task in tasks}
    assert shown.runs == {task for task in tasks if will[task]}
    assert shown.stuck == {task for task in tasks if will[task] is None}
    assert shown.ends_in_ms == max((end(task, tasks, edges) for task in shown.runs), default=0)
    assert_chain(shown, tasks, edges)


def assert_chain(shown: Forecast, tasks: Mapping[int, Coming], edges: Edges) -> None:
    """The path is a chain of edges, and what it takes is what it takes until the end."""
    assert bool(shown.path) is bool(shown.runs)
    pairs = {(one, other) for one, other, _ in edges}
    assert all(pair in pairs for pair in pairwise(shown.path))
    took = sum(remaining_ms(tasks[task]) for task in shown.path)
    assert took + (tasks[shown.path[0]].pause_ms if shown.path else 0) == shown.ends_in_ms


def test_a_long_chain_is_no_deep_recursion() -> None:
    count = 50_000
    tasks = {number: Coming(BEHIND if number else RUNS, takes_ms=2, ran_ms=1) for number in range(count)}
    shown = forecast(tasks, [(number, number + 1, On.SUCCESS) for number in range(count - 1)])
    assert (shown.ends_in_ms, shown.path) == (1 + 2 * (count - 1), tuple(range(count)))


def test_a_failure_handler_is_taken_to_step_aside_and_cleaning_up_to_run() -> None:
    tasks = {1: Coming(RUNS, takes_ms=10), 2: Coming(BEHIND, takes_ms=99), 3: Coming(BEHIND, takes_ms=5)}
    shown = forecast(tasks, [(1, 2, On.FAILURE), (1, 3, On.ALWAYS)])
    assert shown == Forecast((1, 3), 15, frozenset({1, 3}), frozenset())


def test_a_task_that_has_run_longer_than_ever_ends_at_any_moment() -> None:
    assert forecast({1: Coming(RUNS, takes_ms=5, ran_ms=9)}, []).ends_in_ms == 0


def test_nothing_to_come_ends_at_once() -> None:
    assert forecast({}, []) == Forecast((), 0, frozenset(), frozenset())


# Looking back.


def test_a_task_begins_with_the_last_end_or_with_the_first_that_is_enough() -> None:
    before = [Before(1, 10), Before(2, 30), Before(3, 20, met=False), Before(4, 90)]
    assert decisive(Join.ALL, 50, before) == Before(2, 30)
    assert decisive(Join.ANY, 50, before[1:]) == Before(2, 30)
    assert decisive(Join.ANY, 5, before) is None
    assert decisive(Join.ALL, 50, []) is None


def test_only_the_time_after_it_was_ready_counts_as_running() -> None:
    assert ran_ms(10, [Spell(0, 5), Spell(8, 20), Spell(30, 31)]) == 11


def test_what_is_typical_is_the_middle_of_what_was() -> None:
    assert (typical_ms([]), typical_ms([9]), typical_ms([1, 100, 3])) == (None, 9, 3)
