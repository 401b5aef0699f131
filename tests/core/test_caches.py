"""Which bot gets a task that uses a cache, and whose tasks share one."""

from hypothesis import given, settings
from hypothesis import strategies as st

from taskyard.core import matching
from taskyard.core.caches import WAITED_MS, WINDOW_MAX, Warmth, cache_key, cache_name, deal, preferred
from taskyard.core.matching import Turn
from taskyard.core.states import Millis
from tests.effort import tries

NOW = Millis(1_000_000)
NPM, PIP = frozenset({"npm"}), frozenset({"pip"})


def turns(*ids: int, priority: int = 100) -> list[Turn]:
    return [(priority, id, id, None) for id in ids]


def fresh(*ids: int) -> dict[int, Millis]:
    return dict.fromkeys(ids, NOW)


def test_a_key_names_its_cache_and_differs_between_submitters() -> None:
    assert cache_name(cache_key("npm", "ann")) == "npm"
    assert cache_key("npm", "ann") == cache_key("npm", "ann")
    assert len({cache_key("npm", "ann"), cache_key("npm", "bob"), cache_key("pip", "ann")}) == 3


def test_a_bot_prefers_a_task_whose_cache_it_holds() -> None:
    waiting, used = turns(1, 2, 3), {3: NPM}
    assert deal(waiting, [("b1", 1)], {"b1": NPM}, used, fresh(1, 2, 3), NOW) == [[3]]
    assert deal(waiting, [("b1", 2)], {"b1": NPM}, used, fresh(1, 2, 3), NOW) == [[3, 1]]
    assert deal(waiting, [("b1", 1)], {"b1": PIP}, used, fresh(1, 2, 3), NOW) == [[1]]


def test_among_polls_that_wait_the_one_of_a_holder_is_served_first() -> None:
    asked = [("cold", 1), ("other", 1), ("warm", 1)]
    held = {"warm": NPM, "other": PIP}
    assert deal(turns(1), asked, held, {1: NPM}, fresh(1), NOW) == [[], [], [1]]
    assert deal(turns(1, 2), asked, held, {2: NPM}, fresh(1, 2), NOW) == [[1], [], [2]]
    both = {"warm": NPM, "other": NPM | PIP}
    assert deal(turns(1), asked, both, {1: NPM | PIP}, fresh(1), NOW) == [[], [1], []], "it holds more of them"


def test_no_task_of_a_higher_priority_is_passed() -> None:
    waiting = [*turns(1, priority=50), *turns(2)]
    assert deal(waiting, [("b1", 1)], {"b1": NPM}, {2: NPM}, fresh(1, 2), NOW) == [[1]]


def test_no_task_that_has_waited_for_a_minute_is_passed() -> None:
    waiting = turns(1, 2, 3)
    just = {**fresh(1, 2, 3), 2: Millis(NOW - WAITED_MS + 1)}
    assert deal(waiting, [("b1", 1)], {"b1": NPM}, {3: NPM}, just, NOW) == [[3]]
    late = {**fresh(1, 2, 3), 2: Millis(NOW - WAITED_MS)}
    assert deal(waiting, [("b1", 1)], {"b1": NPM}, {3: NPM}, late, NOW) == [[1]]
    assert deal(waiting, [("b1", 1)], {"b1": NPM}, {2: NPM}, late, NOW) == [[2]], "it passes others itself"


def test_only_the_first_tasks_are_looked_at() -> None:
    ids = range(1, WINDOW_MAX + 2)
    for warm, first in ((WINDOW_MAX, WINDOW_MAX), (WINDOW_MAX + 1, 1)):
        assert deal(turns(*ids), [("b1", 1)], {"b1": NPM}, {warm: NPM}, fresh(*ids), NOW) == [[first]], warm


def test_a_task_that_may_stand_behind_unknown_ones_is_not_preferred() -> None:
    assert deal(turns(1, 2), [("b1", 1)], {"b1": NPM}, {2: NPM}, fresh(1), NOW) == [[1]]


def test_a_bot_does_not_get_what_it_has_to_leave_to_others() -> None:
    waiting: list[Turn] = [(100, 1, 1, "b1"), (100, 2, 2, None)]
    held, used = {"b1": NPM, "b2": NPM}, {1: NPM}
    assert deal(waiting, [("b1", 1)], held, used, fresh(1, 2), NOW) == [[2]]
    assert deal(waiting, [("b1", 1), ("b2", 1)], held, used, fresh(1, 2), NOW) == [[2], [1]]


BOTS = st.sampled_from(["b1", "b2", "b3"])
KEYS = st.frozensets(st.sampled_from(["npm", "pip", "go"]), max_size=2)


@given(
    st.lists(
        st.tuples(st.integers(1, 2), st.integers(0, 3), st.integers(1, 40), st.none() | BOTS),
        unique_by=lambda one: one[2],
        max_size=12,
    ),
    st.lists(st.tuples(BOTS, st.integers(0, 3)), max_size=4),
    st.dictionaries(BOTS, KEYS),
    st.dictionaries(st.integers(1, 40), KEYS),
    st.sets(st.integers(1, 40)),
)
@settings(max_examples=tries(100))
def test_every_deal_is_fair(
    waiting: list[Turn],
    asked: list[tuple[str, int]],
    held: dict[str, frozenset[str]],
    used: dict[int, frozenset[str]],
    late: set[int],
) -> None:
    since = {turn[2]: Millis(NOW - WAITED_MS * (turn[2] in late)) for turn in waiting}
    dealt = deal(waiting, asked, held, used, since, NOW)
    given_out = [id for ids in dealt for id in ids]
    assert len(given_out) == len(set(given_out)) <= len(waiting)
    by_id = {turn[2]: turn for turn in waiting}
    for (bot, count), ids in zip(asked, dealt, strict=True):
        assert len(ids) <= count
        assert all(by_id[id][3] != bot for id in ids)
    # A task that is left, and that some poll with room could have got, does not exist.
    for turn in waiting:
        if turn[2] not in given_out:
            assert all(len(ids) == count or turn[3] == bot for (bot, count), ids in zip(asked, dealt, strict=True))
    # Whatever went before a task that had waited for long was before it in the order, or did not keep it from a bot.
    if not any(turn[3] for turn in waiting):
        left = [turn for turn in waiting if turn[2] not in given_out]
        for turn in left:
            if turn[2] in late:
                assert all(by_id[id] < turn for id in given_out)
        assert len(given_out) == sum(map(len, matching.deal(waiting, asked)))


def test_a_bot_that_goes_by_room_prefers_the_same_task_and_passes_none_that_takes_more() -> None:
    waiting, old = turns(*range(1, WINDOW_MAX + 9)), Millis(NOW - WAITED_MS)
    for used, since, first in [
        ({3: NPM}, fresh(1, 2, 3), 3),
        ({3: PIP}, fresh(1, 2, 3), 1),
        ({3: NPM}, fresh(1, 2), 1),
        ({3: NPM}, fresh(1, 3) | {2: old}, 1),
        ({2: NPM}, fresh(1, 3) | {2: old}, 2),
        ({WINDOW_MAX: NPM}, fresh(*range(1, WINDOW_MAX + 9)), WINDOW_MAX),
        ({WINDOW_MAX + 1: NPM}, fresh(*range(1, WINDOW_MAX + 9)), 1),
    ]:
        ordered = preferred(waiting, "b1", Warmth({"b1": NPM}, used, since, NOW), lambda _: True)
        assert ordered[0][2] == first, used
        assert deal(waiting, [("b1", 1)], {"b1": NPM}, used, since, NOW) == [[first]]
        assert sorted(ordered) == waiting
    fixed = Warmth({"b1": NPM}, {3: NPM}, fresh(1, 2, 3), NOW)
    assert preferred(waiting, "b1", fixed, lambda id: id != 2)[0][2] == 1
