"""Which tasks run again and which are reused, as a table of small cases; tests of the engine run whole graphs."""

from taskyard.core.graph.rerun import Renewal, behind, named, renewal
from taskyard.core.states import State
from tests.each_row import each_row

S = State
#: a -> b -> c, and x beside them.
ROW: dict[str, list[str]] = {"a": [], "b": ["a"], "c": ["b"], "x": []}
DONE = dict.fromkeys(ROW, S.SUCCESSFUL)


@each_row(
    ("states", "start", "again", "reused"),
    [
        ({}, "b", "bc", "ax"),
        ({}, "ax", "abcx", ""),
        ({}, "c", "c", "abx"),
        ({"x": S.FAILED}, "c", "cx", "ab"),
        ({"x": S.ERROR}, "c", "cx", "ab"),
        ({"x": S.CANCELED}, "c", "cx", "ab"),
        ({"a": S.FAILED, "b": S.BLOCKED, "c": S.UNSCHEDULED}, "x", "abcx", ""),
        ({"a": S.FAILED, "b": S.SUCCESSFUL, "c": S.SUCCESSFUL}, "x", "abcx", ""),
        ({"x": S.SKIPPED}, "c", "c", "ab"),
        ({"b": S.SKIPPED, "c": S.SUCCESSFUL}, "x", "x", "ac"),
        ({"b": S.SKIPPED, "c": S.SUCCESSFUL}, "a", "abc", "x"),
    ],
)
def test_a_rerun_runs_some_tasks_and_reuses_others(
    states: dict[str, State], start: str, again: str, reused: str
) -> None:
    assert renewal(ROW, DONE | states, set(start)) == Renewal(frozenset(again), frozenset(reused))


def test_a_long_chain_is_no_deep_recursion() -> None:
    chain = {str(number): [str(number - 1)] if number else [] for number in range(50_000)}
    assert len(behind(chain, ["1"])) == 49_999


def test_names_mean_labels_or_every_combination_of_a_matrix() -> None:
    labels = {"build": "", "test[a]": "test", "test[b]": "test", "deploy": ""}
    assert named(["build", "test"], labels) == ({"build", "test[a]", "test[b]"}, ())
    assert named(["test[b]", "test[b]"], labels) == ({"test[b]"}, ())
    found, faults = named(["deploi", "", "nonsense"], labels)
    assert (found, [fault.path for fault in faults]) == (set(), ["from[0]", "from[1]", "from[2]"])
    assert faults[0].message == 'unknown label "deploi"; did you mean "deploy"?'
