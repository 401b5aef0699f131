"""The keys of tasks, attempts and events: how they are made, written, sorted and read."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskyard.core import ids
from taskyard.core.ids import EPOCH_MS, LAST_MS, AttemptKey, Key, Stamp
from taskyard.core.states import BotId, Millis
from tests.each_row import each_row

NOON = Millis(1_800_000_000_000)
FULL = (1 << 16) - 1

moments = st.integers(EPOCH_MS, LAST_MS).map(Millis)
chances = st.integers(0, FULL)


def one(now: int, chance: int) -> Key:
    (key,) = ids.mint(Millis(now), 1, chance)
    return key


@pytest.mark.parametrize(
    ("now", "chance", "text"),
    [
        (EPOCH_MS, 0x0000, "7ffffffffffffff8"),
        (EPOCH_MS, 0x7766, "7ffffffffff88998"),
        (EPOCH_MS + 1, 0x0000, "7fffffffffeffff8"),
        (LAST_MS, 0x7766, "0000000000088998"),
        (LAST_MS, 0xFFFF, "0000000000000008"),
    ],
)
def test_a_key_is_the_time_and_the_chance_notted_above_the_version(now: int, chance: int, text: str) -> None:
    assert ids.text_of(one(now, chance)) == text


def test_time_begins_in_2010_and_ends_in_2288() -> None:
    assert datetime.fromtimestamp(EPOCH_MS / 1000, UTC) == datetime(2010, 1, 1, tzinfo=UTC)
    assert datetime.fromtimestamp(LAST_MS / 1000, UTC).year == 2288


@given(moments, chances)
def test_every_key_has_63_bits_and_ends_with_the_version(now: Millis, chance: int) -> None:
    key = one(now, chance)
    assert 0 <= key < 1 << 63
    assert key & 0xF == 0x8


@given(moments, chances)
def test_the_parts_of_a_key_can_be_read_back(now: Millis, chance: int) -> None:
    key = one(now, chance)
    assert ids.stamp(ids.key_of(ids.text_of(key))) == Stamp(now, chance)


@given(st.lists(st.tuples(moments, chances), min_size=2, max_size=20))
def test_texts_sort_as_keys_do_and_newer_ones_come_first(made: list[tuple[Millis, int]]) -> None:
    keys = [one(now, chance) for now, chance in sorted(made)]
    assert keys == sorted(keys, reverse=True)
    assert [ids.text_of(key) for key in keys] == sorted(map(ids.text_of, keys), reverse=True)
    assert {len(ids.text_of(key)) for key in keys} == {16}


def test_a_hundred_thousand_keys_of_one_call_are_distinct_and_sort_in_the_order_of_the_call() -> None:
    keys = ids.mint(NOON, 100_000, chance=FULL)
    assert len(set(keys)) == 100_000
    assert keys == sorted(keys)
    assert [ids.text_of(key) for key in keys] == sorted(map(ids.text_of, keys))


def test_a_call_that_fills_its_millisecond_spills_into_the_ones_that_follow() -> None:
    keys = ids.mint(NOON, 2 + 65_536, chance=FULL)
    assert ids.stamp(keys[-1]) == Stamp(NOON, FULL)
    assert ids.stamp(keys[-2]) == Stamp(Millis(NOON + 1), 0)
    assert ids.stamp(keys[0]) == Stamp(Millis(NOON + 2), 0)


@given(moments.filter(lambda now: now < LAST_MS - 1), chances, st.integers(0, 200))
def test_a_call_of_ordinary_size_is_within_a_millisecond_of_the_clock(now: Millis, chance: int, count: int) -> None:
    keys = ids.mint(now, count, chance)
    assert len(set(keys)) == count
    assert all(ids.stamp(key).created_ms - now in (0, 1) for key in keys)


def test_all_keys_of_a_later_moment_sort_before_those_of_an_earlier_one() -> None:
    earlier, later = ids.mint(NOON, 50, 0), ids.mint(Millis(NOON + 1), 50, 0)
    assert max(later) < min(earlier)


@pytest.mark.parametrize("step_ms", [-3_600_000, -1, 0, 1])
def test_a_maker_that_passes_its_newest_key_never_repeats_one_whatever_its_clock_does(step_ms: int) -> None:
    first = ids.mint(NOON, 100_000, chance=7)
    second = ids.mint(Millis(NOON + step_ms), 100, chance=7, newest=first[0])
    assert set(first).isdisjoint(second)
    assert max(second) < min(first)


def test_a_clock_that_went_on_is_believed_over_the_newest_key() -> None:
    newest = one(NOON, 7)
    assert ids.mint(Millis(NOON + 50), 1, 3, newest) == [one(NOON + 50, 3)]


def test_other_chance_gives_other_keys_in_the_same_millisecond() -> None:
    assert one(NOON, 1) != one(NOON, 2)


def test_no_keys_are_made_when_none_are_asked_for() -> None:
    assert ids.mint(NOON, 0, 0) == []


@pytest.mark.parametrize(
    ("now", "count", "chance", "fault"),
    [
        (EPOCH_MS - 1, 1, 0, "2010"),
        (0, 1, 0, "2010"),
        (LAST_MS + 1, 1, 0, "2288"),
        (LAST_MS, 2, FULL, "time ends"),
        (NOON, 1, -1, "16 bits"),
        (NOON, 1, FULL + 1, "16 bits"),
        (NOON, -1, 0, "cannot make -1 keys"),
        (NOON, ids.MINT_MAX + 1, 0, "1000001 keys"),
    ],
)
def test_what_does_not_fit_in_a_key_is_refused(now: int, count: int, chance: int, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        ids.mint(Millis(now), count, chance)


def test_the_last_place_of_time_can_be_taken() -> None:
    assert one(LAST_MS, FULL) == 0x8


@each_row(
    "text",
    [
        "",
        "7ffffffffffffff",  # short
        "07ffffffffffffff8",  # long
        "7FFFFFFFFFFFFFF8",  # capitals would sort elsewhere
        "8ffffffffffffff8",  # 64 bits
        " 7fffffffffffff8",
        "7ffffffffffffff8\n",
        "0x7ffffffffffff8",
        "7fff_fffffffffff",
        "7fffffffffffff\u0661" + "8",  # a digit to Unicode, not to us
        "-7fffffffffffff8",
    ],
)
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no id"):
        ids.key_of(text)


@each_row("digit", "012345679abcdef")
def test_a_key_of_another_version_is_refused(digit: str) -> None:
    with pytest.raises(ValueError, match=f"says version {digit}, and only version 8 is known"):
        ids.key_of("7fffffffffffff" + "f" + digit)


def test_the_fault_of_a_very_long_text_is_short() -> None:
    with pytest.raises(ValueError) as caught:
        ids.key_of("z" * 1_000_000)
    assert len(str(caught.value)) < 200


@given(moments, chances, st.integers(1, 10**30))
def test_the_id_of_an_attempt_can_be_read_back_however_many_there_were(now: Millis, chance: int, number: int) -> None:
    attempt = AttemptKey(one(now, chance), number)
    assert ids.attempt_of(ids.attempt_text(attempt)) == attempt


def test_an_attempt_is_spelled_in_decimal_after_its_task() -> None:
    assert ids.attempt_text(AttemptKey(one(EPOCH_MS, 0), 16)) == "7ffffffffffffff8-16"


@each_row(
    "text",
    [
        "7ffffffffffffff8",
        "7ffffffffffffff8-",
        "7ffffffffffffff8-0",
        "7ffffffffffffff8-01",
        "7ffffffffffffff8--1",
        "7ffffffffffffff8-f",
        "7ffffffffffffff8-1 ",
        "7ffffffffffffff8-\u0661",
        "7ffffffffffffff8_1",
        "zffffffffffffff8-1",
        "7ffffffffffffff1-1",
        "7ffffffffffffff8-" + "9" * 101,
        "7ffffffffffffff8-" + "9" * 100_000,
    ],
)
def test_text_that_is_no_attempt_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no id"):
        ids.attempt_of(text)


@pytest.mark.parametrize("number", [0, -1])
def test_attempts_are_numbered_from_one(number: int) -> None:
    with pytest.raises(ValueError, match="from 1"):
        ids.attempt_text(AttemptKey(one(NOON, 0), number))


def test_the_keys_of_a_bots_events_go_down_from_all_ones() -> None:
    assert [ids.bot_event_text(number, digits=5) for number in (0, 1, 0xFFFFF)] == ["fffff", "ffffe", "00000"]


@given(st.integers(0, 16**12 - 2))
def test_a_newer_event_of_a_bot_sorts_first(number: int) -> None:
    assert ids.bot_event_text(number + 1) < ids.bot_event_text(number)
    assert ids.bot_event_number(ids.bot_event_text(number)) == number


@pytest.mark.parametrize("number", [-1, 16**12])
def test_an_event_beyond_the_keys_of_a_bot_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="no event"):
        ids.bot_event_text(number)


@pytest.mark.parametrize("text", ["", "FFFFF", "fff ", "0" * 13])
def test_text_that_is_no_key_of_an_event_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no key of a bot's event"):
        ids.bot_event_number(text)


def test_what_hangs_below_a_task_or_a_bot_has_the_keys_of_the_schema() -> None:
    assert (ids.TASK_RESULT_SUMMARY_KEY, ids.FIRST_TASK_RUN_RESULT_KEY, ids.PERFORMANCE_STATS_KEY) == (1, 1, 1)
    assert (ids.SECRET_BYTES_KEY, ids.TASK_OUTPUT_KEY, ids.FIRST_TASK_OUTPUT_CHUNK_KEY) == (1, 1, 1)
    assert (ids.BOT_SETTINGS_KEY, ids.BOT_INFO_KEY, ids.BOT_DIMENSIONS_KEY) == ("settings", "info", 1)
    assert ids.DIMENSION_AGGREGATION_KEY == "current"


def test_queues_hang_below_a_pool_or_a_bot() -> None:
    assert ids.pool_root("lab") == "pool:lab"
    assert ids.bot_root(BotId("rack4-11")) == "id:rack4-11"
