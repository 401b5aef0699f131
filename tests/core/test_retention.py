"""Which time counts, and what of a graph is due."""

from taskyard.core.durations import DAY_MS
from taskyard.core.retention import DEFAULTS, Kept, RetentionTimes, SettledGraph
from taskyard.core.states import GraphState, Millis
from taskyard.wire.api import KEPT_KINDS
from tests.each_row import each_row

SETTLED = Millis(1_000 * DAY_MS)


def settled_graph(*pools: str, state: GraphState = GraphState.FINISHED, purged: tuple[Kept, ...] = ()) -> SettledGraph:
    return SettledGraph(1, state, SETTLED, frozenset(purged), frozenset(pools or ("lab",)))


@each_row(
    ("times", "pools", "wanted"),
    [
        ({}, ("lab",), None),
        ({("*", Kept.GRAPHS): 5}, ("lab",), 5),
        ({("*", Kept.GRAPHS): 5, ("lab", Kept.GRAPHS): 3}, ("lab",), 3),
        ({("*", Kept.GRAPHS): 5, ("lab", Kept.GRAPHS): None}, ("lab",), None),
        ({("lab", Kept.GRAPHS): 3, ("ci", Kept.GRAPHS): 4}, ("ci", "lab"), 4),
        ({("lab", Kept.GRAPHS): 3}, ("ci", "lab"), None),
        ({("lab", Kept.OUTPUT): 3}, ("lab",), None),
        ({("*", Kept.GRAPHS): 5}, (), 5),
    ],
)
def test_the_longest_time_of_all_pools_counts(
    times: dict[tuple[str, Kept], int | None], pools: tuple[str, ...], wanted: int | None
) -> None:
    assert RetentionTimes(times).keep_ms(Kept.GRAPHS, pools) == wanted


def test_a_part_is_due_when_its_time_is_over_and_it_is_not_purged_yet() -> None:
    times = RetentionTimes({("*", Kept.OUTPUT): DAY_MS, ("*", Kept.RESULTS): 2 * DAY_MS})
    assert times.due_parts(settled_graph(), Millis(SETTLED + DAY_MS - 1)) == []
    assert times.due_parts(settled_graph(), Millis(SETTLED + DAY_MS)) == [Kept.OUTPUT]
    assert times.due_parts(settled_graph(), Millis(SETTLED + 2 * DAY_MS)) == [Kept.OUTPUT, Kept.RESULTS]
    assert times.due_parts(settled_graph(purged=(Kept.OUTPUT,)), Millis(SETTLED + DAY_MS)) == []


def test_what_a_rerun_needs_is_kept_while_a_rerun_is_possible() -> None:
    times = RetentionTimes({("*", kind): DAY_MS for kind in (Kept.OUTPUT, Kept.FILES, Kept.RESULTS)})
    late = Millis(SETTLED + DAY_MS)
    assert times.due_parts(settled_graph(state=GraphState.BLOCKED), late) == [Kept.OUTPUT]
    assert len(times.due_parts(settled_graph(state=GraphState.CANCELED), late)) == 3


def test_the_shortest_time_says_how_far_to_look() -> None:
    times = RetentionTimes({("*", Kept.OUTPUT): 5, ("lab", Kept.OUTPUT): 3, ("ci", Kept.GRAPHS): 1})
    assert times.shortest([Kept.OUTPUT]) == 3
    assert times.shortest([Kept.OUTPUT, Kept.GRAPHS]) == 1
    assert RetentionTimes({}).shortest([Kept.OUTPUT, Kept.GRAPHS]) is None


def test_work_is_never_deleted_unasked_and_every_kind_has_a_default() -> None:
    assert set(DEFAULTS) == set(Kept)
    assert tuple(one.value for one in Kept) == KEPT_KINDS
    assert all(DEFAULTS[kind] is None for kind in (Kept.OUTPUT, Kept.FILES, Kept.RESULTS, Kept.GRAPHS, Kept.AUDIT))
