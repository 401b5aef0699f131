"""Which bot may run which slice: canonical dimensions, queues, matching, order."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskyard.core import matching
from taskyard.core.ids import Key
from taskyard.core.matching import Candidate, Dimensions, Nearest, canonical, dimension_hash
from taskyard.core.states import BotId, Millis, TaskId
from taskyard.core.structs import struct_replace
from tests.each_row import each_row

Written = Mapping[str, str | Sequence[str]]

# Found by search: two different queues of one pool with one hash.
COLLIDING = (
    canonical({"pool": "lab", "device": "d30797"}),
    canonical({"pool": "lab", "device": "d109039"}),
)

words = st.sampled_from(["a", "b", "c", "d"])
values = st.lists(words, min_size=1, max_size=3, unique=True).map("|".join)
asked_sets = st.dictionaries(words, st.lists(values, min_size=1, max_size=2), max_size=2).map(canonical)
bot_sets = st.dictionaries(words, st.sets(words, min_size=1, max_size=4), max_size=4).map(canonical)


def bot(**dimensions: str | Sequence[str]) -> Dimensions:
    return canonical({"id": "rack4-11", "pool": ["default", "lab"], "os": ["Linux", "Debian"], **dimensions})


def candidate(task: str, priority: int = 100, created_ms: int = 0, **dimensions: str) -> Candidate:
    asked = canonical({"pool": "lab", **dimensions})
    return Candidate(TaskId(task), asked, dimension_hash(asked), priority, Millis(created_ms))


def chosen(candidates: Sequence[Candidate], count: int = 10) -> list[object]:
    return [one.task for one in matching.choose(candidates, bot(), count)]


def test_the_canonical_form_sorts_keys_values_and_alternatives_and_keeps_each_once() -> None:
    written = {"os": ["c|a|b|a", "Linux", "Linux"], "gpu": "h100"}
    assert canonical(written) == (("gpu", ("h100",)), ("os", ("Linux", "a|b|c")))


@pytest.mark.parametrize("value", list(permutations("acb")))
def test_the_order_of_alternatives_does_not_matter(value: tuple[str, ...]) -> None:
    assert canonical({"os": "|".join(value)}) == canonical({"os": "b|c|a"})


@given(asked_sets)
def test_the_order_in_which_dimensions_are_written_does_not_matter(asked: Dimensions) -> None:
    backwards = {key: ["|".join(reversed(v.split("|"))) for v in reversed(vs)] for key, vs in reversed(asked)}
    assert canonical(backwards) == asked
    assert dimension_hash(canonical(backwards)) == dimension_hash(asked)


@pytest.mark.parametrize(
    "written", [{"": "a"}, {"os": ""}, {"os": []}, {"os": "a||b"}, {"os": "|a"}, {"os": ["a", ""]}]
)
def test_an_empty_name_or_value_is_refused(written: Written) -> None:
    with pytest.raises(ValueError, match="empty name or value"):
        canonical(written)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": ["b", "c", "d"]}, {"a": ["b"], "c": ["d"]}),  # collides for good where keys and values run together
        ({"a": ["b", "c"]}, {"a": "b,c"}),
        ({"a": ["b", "c"]}, {"a": "b|c"}),
        ({"a": 'b"],["c'}, {"a": ["b", "c"]}),
        ({"a": "é"}, {"a": "\\u00e9"}),
        ({}, {"a": "b"}),
    ],
)
def test_different_dimensions_are_distinguished(one: Written, other: Written) -> None:
    assert dimension_hash(canonical(one)) != dimension_hash(canonical(other))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({}, 0x97D170E1),
        ({"pool": "lab", "device": "d30797"}, 0xF570D17E),
        ({"a": ["b", "c", "d"]}, 2219528289),
        ({"a": ["b"], "c": ["d"]}, 4118859051),
    ],
)
def test_the_hash_of_a_queue_never_changes_between_versions(written: Written, expected: int) -> None:
    assert dimension_hash(canonical(written)) == expected


@given(asked_sets)
def test_a_hash_has_32_bits_and_is_never_zero(asked: Dimensions) -> None:
    assert 1 <= dimension_hash(asked) < 1 << 32


def test_a_digest_that_begins_with_zeros_gives_the_hash_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Zeros:
        def digest(self) -> bytes:
            return bytes(20)

    def all_zeros(text: bytes, usedforsecurity: bool) -> Zeros:
        return Zeros()

    monkeypatch.setattr(matching, "sha1", all_zeros)
    assert dimension_hash(()) == 1


@pytest.mark.parametrize(
    ("written", "flat"),
    [
        ({}, [{}]),
        ({"os": "a"}, [{"os": "a"}]),
        ({"os": "a|b"}, [{"os": "a"}, {"os": "b"}]),
        ({"os": ["x", "a|b"]}, [{"os": ["a", "x"]}, {"os": ["b", "x"]}]),
        ({"os": ["a|b", "b|c"]}, [{"os": ["a", "b"]}, {"os": ["a", "c"]}, {"os": "b"}, {"os": ["b", "c"]}]),
        ({"os": ["a|b", "a|b|c"]}, [{"os": o} for o in (["a"], ["a", "b"], ["a", "c"], ["b"], ["b", "c"])]),
        ({"g": "1|2", "os": "a|b"}, [{"g": g, "os": os} for g in "12" for os in "ab"]),
    ],
)
def test_alternatives_expand_to_the_sets_that_would_each_serve(written: Written, flat: Sequence[Written]) -> None:
    assert matching.combinations(canonical(written)) == tuple(canonical(one) for one in flat)


def test_eight_combinations_are_allowed_and_nine_are_not() -> None:
    assert len(matching.combinations(canonical({"a": "1|2", "b": "1|2", "c": "1|2"}))) == 8
    with pytest.raises(ValueError, match="9 combinations: at most 8"):
        matching.combinations(canonical({"a": "1|2|3", "b": "1|2|3"}))


def test_a_huge_number_of_combinations_is_refused_before_it_is_made() -> None:
    with pytest.raises(ValueError, match="at most 8"):
        matching.combinations(canonical({f"k{i}": "1|2|3|4" for i in range(32)}))


@each_row(
    ("asked", "met"),
    [
        ({}, True),
        ({"pool": "lab"}, True),  # a bot has more than is required
        ({"pool": "lab", "os": "Linux", "id": "rack4-11"}, True),
        ({"os": ["Linux", "Debian"]}, True),
        ({"os": ["Linux", "Windows"]}, False),  # several values: all are needed
        ({"os": "Linux|Windows"}, True),
        ({"os": "Mac|Windows"}, False),
        ({"os": ["Debian", "Mac|Linux"]}, True),  # `[x, a|b]` needs x and one of a, b
        ({"os": ["Mac", "Debian|Linux"]}, False),
        ({"gpu": "h100"}, False),  # a key is lacking
        ({"gpu": "h100|a100"}, False),
        ({"os": "linux"}, False),
        ({"os": "Lin"}, False),
        ({"id": "rack4-1"}, False),
        ({"id": "rack4-11", "pool": "other"}, False),
    ],
)
def test_a_bot_needs_every_value_and_one_of_each_alternatives(asked: Written, met: bool) -> None:
    assert matching.matches(canonical(asked), bot()) is met


@given(asked_sets, bot_sets)
def test_a_bot_matches_when_it_has_a_superset_of_some_combination(asked: Dimensions, has: Dimensions) -> None:
    pairs = {(key, value) for key, values in has for value in values}
    flat = [{(key, value) for key, values in one for value in values} for one in _all_combinations(asked)]
    assert matching.matches(asked, has) is any(one <= pairs for one in flat)


@given(asked_sets, bot_sets)
def test_nothing_is_missing_exactly_when_a_bot_matches(asked: Dimensions, has: Dimensions) -> None:
    assert (matching.missing(asked, has) == ()) is matching.matches(asked, has)


@given(asked_sets, bot_sets)
def test_a_bot_that_is_given_what_it_lacks_matches(asked: Dimensions, has: Dimensions) -> None:
    mended = {key: set(values) for key, values in has}
    for key, lacking in matching.missing(asked, has):
        mended.setdefault(key, set()).update(value.split("|")[0] for value in lacking)
    assert matching.matches(asked, canonical(mended))


def test_a_missing_value_is_named_as_it_was_required() -> None:
    asked = canonical({"pool": "lab", "os": ["Linux", "Mac|Windows"], "gpu": "h100"})
    assert matching.missing(asked, bot()) == canonical({"os": "Mac|Windows", "gpu": "h100"})


def test_the_nearest_bot_lacks_the_fewest_values_and_ties_go_by_name() -> None:
    asked = canonical({"gpu": "h100", "disk": ["ssd", "big"]})
    bots = {
        "far": canonical({"pool": "lab"}),
        "near-b": canonical({"gpu": "h100", "disk": "ssd"}),
        "near-a": canonical({"disk": ["big", "ssd"]}),
    }
    listed = [(BotId(name), has) for name, has in bots.items()]
    assert matching.nearest(asked, listed) == Nearest(BotId("near-a"), canonical({"gpu": "h100"}))


def test_one_key_with_two_lacking_values_is_farther_than_two_with_one_in_all() -> None:
    asked = canonical({"disk": ["big", "ssd"], "gpu": "h100"})
    listed = [(BotId("a"), canonical({"gpu": "h100"})), (BotId("b"), canonical({"disk": ["big", "ssd"]}))]
    assert matching.nearest(asked, listed) == Nearest(BotId("b"), canonical({"gpu": "h100"}))


def test_there_is_no_nearest_bot_in_an_empty_fleet() -> None:
    assert matching.nearest(canonical({"pool": "lab"}), []) is None


@pytest.mark.parametrize(
    ("asked", "root"),
    [
        ({"pool": "lab"}, "pool:lab"),
        ({"pool": "lab", "os": "a|b"}, "pool:lab"),
        ({"pool": "lab", "id": "rack4-11"}, "id:rack4-11"),
        ({"id": "rack4-11"}, "id:rack4-11"),
        ({"pool": "lab", "id": "rack4-11|rack4-12"}, "pool:lab"),  # either bot finds it in the pool
    ],
)
def test_a_pinned_queue_hangs_below_its_bot_and_others_below_their_pool(asked: Written, root: str) -> None:
    assert matching.queue_root(canonical(asked)) == root


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({}, "no pool, or several"),
        ({"id": "a|b"}, "no pool, or several"),
        ({"pool": "a|b"}, "no pool, or several"),
        ({"pool": ["a", "b"]}, "no pool, or several"),
        ({"pool": "lab", "id": ["a", "b"]}, "several ids"),
    ],
)
def test_dimensions_without_one_root_are_refused(asked: Written, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        matching.queue_root(canonical(asked))


def test_the_lowest_priority_number_goes_first_then_the_oldest_then_the_first_by_id() -> None:
    waiting = [
        candidate("e", priority=255, created_ms=1),
        candidate("d", priority=100, created_ms=9),
        candidate("c", priority=100, created_ms=8),
        candidate("b", priority=100, created_ms=8),
        candidate("a", priority=0, created_ms=99),
    ]
    assert chosen(waiting) == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("count", "tasks"),
    [(0, []), (1, ["a"]), (2, ["a", "b"]), (3, ["a", "b", "c"]), (4, ["a", "b", "c"])],
)
def test_no_more_are_chosen_than_asked_for(count: int, tasks: list[str]) -> None:
    waiting = [candidate("c", created_ms=3), candidate("a", created_ms=1), candidate("b", created_ms=2)]
    assert chosen(waiting, count) == tasks


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (datetime(2027, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)),
        (datetime(2028, 2, 28, 23, tzinfo=UTC), datetime(2028, 2, 29, tzinfo=UTC)),
        (datetime(2028, 2, 29, 23, tzinfo=UTC), datetime(2028, 3, 1, tzinfo=UTC)),
        (datetime(2028, 12, 30, tzinfo=UTC), datetime(2028, 12, 31, tzinfo=UTC)),  # day 366
        (datetime(2027, 6, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)),
    ],
)
def test_priority_and_age_hold_over_new_year_and_leap_days(older: datetime, newer: datetime) -> None:
    old_ms, new_ms = (int(moment.timestamp() * 1000) for moment in (older, newer))
    waiting = [
        candidate("new-low", priority=90, created_ms=new_ms),
        candidate("new", priority=20, created_ms=new_ms),
        candidate("old-low", priority=90, created_ms=old_ms),
        candidate("old", priority=20, created_ms=old_ms),
    ]
    assert chosen(waiting) == ["old", "new", "old-low", "new-low"]


def test_a_task_in_a_colliding_queue_is_never_given_to_the_wrong_bot() -> None:
    mine, other = COLLIDING
    assert dimension_hash(mine) == dimension_hash(other)
    waiting = [
        Candidate(TaskId("other"), other, dimension_hash(other), 0, Millis(0)),
        Candidate(TaskId("mine"), mine, dimension_hash(mine), 200, Millis(9)),
    ]
    assert [one.task for one in matching.choose(waiting, mine, 2)] == ["mine"]
    assert [one.task for one in matching.choose(waiting, other, 2)] == ["other"]


def test_a_task_that_the_bot_cannot_run_does_not_stand_in_the_way_of_others() -> None:
    waiting = [candidate("first", priority=0, gpu="h100"), candidate("second"), candidate("third", os="Debian|Mac")]
    assert chosen(waiting) == ["second", "third"]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), words), max_size=12), st.integers(0, 5))
def test_choosing_is_sorting_what_matches(drawn: list[tuple[int, int, str]], count: int) -> None:
    waiting = [candidate(f"{n:02}", priority, created, os=os_) for n, (priority, created, os_) in enumerate(drawn)]
    has = canonical({"pool": "lab", "os": ["a", "b"]})
    fit = [one for one in waiting if dict(one.dimensions)["os"][0] in "ab"]
    fit.sort(key=lambda one: (one.priority, one.created_ms, one.task))
    assert matching.choose(waiting, has, count) == fit[:count]


def _all_combinations(asked: Dimensions) -> Sequence[Dimensions]:
    """Expand without the limit on combinations, one value at a time."""
    flat: list[dict[str, set[str]]] = [{}]
    for key, values_of_key in asked:
        for value in values_of_key:
            flat = [{**one, key: one.get(key, set()) | {choice}} for one in flat for choice in value.split("|")]
    return [canonical(one) for one in flat]


@pytest.mark.parametrize("asked", [{}, {"os": "Linux"}, {"id": "b1"}, {"zone": "z", "a": ["x", "y"]}])
def test_what_names_no_pool_is_put_into_the_default_one(asked: Written) -> None:
    assert matching.with_pool(canonical(asked)) == canonical({**asked, "pool": "default"})


def test_what_names_a_pool_stays_as_it_is() -> None:
    asked = canonical({"pool": "lab", "os": "Linux"})
    assert matching.with_pool(asked) is asked
    assert (matching.pool_of(asked), matching.pool_of(())) == ("lab", "")


def test_a_task_that_this_bot_lost_is_left_to_another() -> None:
    lost, other = candidate("lost"), candidate("other", priority=200)
    assert chosen([struct_replace(lost, avoid_bot=BotId("rack4-11")), other]) == ["other"]
    assert chosen([struct_replace(lost, avoid_bot=BotId("rack4-12")), other]) == ["lost", "other"]


def test_a_task_that_is_in_two_queues_of_a_bot_is_given_once() -> None:
    assert chosen([candidate("t", os="Linux|Debian"), candidate("t", os="Linux|Debian"), candidate("u")]) == ["t", "u"]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from(["bot0", "bot1", None])), max_size=12),
    st.lists(st.integers(0, 4), max_size=5),
)
def test_dealing_is_choosing_one_bot_after_the_other(
    drawn: list[tuple[int, int, str | None]], wishes: list[int]
) -> None:
    turns = [(priority, created, key, lost_by) for key, (priority, created, lost_by) in enumerate(drawn)]
    left, expected = list(turns), []
    for number, count in enumerate(wishes):
        candidates = [
            Candidate(Key(key), (), 1, priority, Millis(created), None if lost_by is None else BotId(lost_by))
            for priority, created, key, lost_by in left
        ]
        expected.append([one.task for one in matching.choose(candidates, canonical({"id": f"bot{number}"}), count)])
        left = [turn for turn in left if turn[2] not in expected[-1]]
    dealt = matching.deal(turns, [(f"bot{number}", count) for number, count in enumerate(wishes)])
    assert dealt == expected


def test_a_task_that_a_bot_lost_goes_to_the_next_one() -> None:
    turns = [(100, 1, 1, "bot1"), (100, 2, 2, None)]
    assert matching.deal(turns, [("bot1", 1), ("bot2", 1)]) == [[2], [1]]
