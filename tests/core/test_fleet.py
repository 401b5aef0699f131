"""The properties of bots: alive or dead, available or not, with free slots or without."""

from itertools import product

import pytest

from taskyard.core import fleet
from taskyard.core.fleet import BotFacts, Condition
from taskyard.core.matching import canonical
from taskyard.core.states import BotId, Millis
from taskyard.core.structs import struct_replace
from tests.each_row import each_row

NOW = Millis(1_800_000_000_000)
BOT = BotFacts(BotId("rack4-11"), canonical({"id": "rack4-11", "pool": "lab", "gpu": "h100"}), NOW, slots=4, busy=1)

GPU = canonical({"pool": "lab", "gpu": "h100"})

UNFIT = {
    "quarantined": struct_replace(BOT, quarantined="disk is full"),
    "quarantined without a word": struct_replace(BOT, quarantined=""),
    "maintenance": struct_replace(BOT, maintenance="battery is charging"),
    "maintenance without a word": struct_replace(BOT, maintenance=""),
    "draining": struct_replace(BOT, draining=True),
    "terminated": struct_replace(BOT, terminated=True),
    "missing": struct_replace(BOT, missing=True),
    "ending": struct_replace(BOT, ending=True),
}


def test_a_dead_bot_is_noticed_after_a_lease_a_guard_and_a_sweep() -> None:
    assert (fleet.LEASE_MS, fleet.GUARD_MS, fleet.SWEEP_MS) == (60_000, 5_000, 5_000)
    assert fleet.MISSING_WITHIN_MS == 70_000


@pytest.mark.parametrize(
    ("lease_ms", "silence_ms"), [(2_000, 7_000), (60_000, 65_000), (60_001, 65_000), (3_600_000, 65_000)]
)
def test_a_silence_is_marked_after_a_lease_and_a_guard_and_never_later_than_by_default(
    lease_ms: int, silence_ms: int
) -> None:
    assert fleet.silence_max_ms(lease_ms) == silence_ms
    assert fleet.silence_max_ms(lease_ms) + fleet.SWEEP_MS <= fleet.MISSING_WITHIN_MS


def test_a_bot_lives_until_it_is_marked_missing_however_long_it_was_silent() -> None:
    assert fleet.alive(struct_replace(BOT, last_seen_ms=Millis(0)))
    assert not fleet.alive(UNFIT["missing"])


def test_a_bot_that_said_goodbye_is_dead_at_once() -> None:
    assert not fleet.alive(UNFIT["terminated"])


def test_a_live_healthy_bot_takes_work_even_when_it_is_busy() -> None:
    assert fleet.takes_work(BOT)
    assert fleet.takes_work(struct_replace(BOT, busy=4))


@pytest.mark.parametrize("bot", UNFIT.values(), ids=UNFIT)
def test_an_unfit_bot_takes_no_work_and_has_no_idle_slots(bot: BotFacts) -> None:
    assert not fleet.takes_work(bot)
    assert fleet.idle_slots(bot) == 0


@pytest.mark.parametrize(
    ("slots", "busy", "idle"),
    [(1, 0, 1), (1, 1, 0), (4, 1, 3), (4, 4, 0), (2, 3, 0), (0, 0, 0)],
)
def test_idle_slots_are_those_without_an_attempt_and_never_less_than_none(slots: int, busy: int, idle: int) -> None:
    assert fleet.idle_slots(struct_replace(BOT, slots=slots, busy=busy)) == idle


@each_row(
    ("bot", "counts"),
    [
        (BOT, True),
        (struct_replace(BOT, busy=4), True),  # it will be free
        (UNFIT["maintenance"], True),  # it will be back
        (UNFIT["quarantined"], False),
        (UNFIT["quarantined without a word"], False),
        (UNFIT["draining"], False),
        (UNFIT["terminated"], False),
        (UNFIT["missing"], False),
        (UNFIT["ending"], False),
    ],
)
def test_only_live_bots_that_may_work_again_count_as_capacity(bot: BotFacts, counts: bool) -> None:
    assert fleet.capacity_seen(canonical({"pool": "lab"}), [bot]) is counts


@pytest.mark.parametrize(
    ("asked", "seen_capacity"),
    [
        ({"pool": "lab"}, True),
        ({"pool": "lab", "gpu": "h100|a100"}, True),
        ({"pool": "lab", "gpu": "a100"}, False),
        ({"pool": "default"}, True),
        ({"pool": "other"}, False),
    ],
)
def test_capacity_is_seen_when_one_bot_matches_in_full(asked: dict[str, str], seen_capacity: bool) -> None:
    second = BotFacts(BotId("mac-1"), canonical({"id": "mac-1", "pool": "default", "gpu": "m3"}), NOW)
    assert fleet.capacity_seen(canonical(asked), [second, BOT]) is seen_capacity


def test_an_empty_fleet_has_no_capacity() -> None:
    assert not fleet.capacity_seen((), [])


@each_row(
    ("dead", "quarantined", "in_maintenance", "busy"),
    list(product((False, True), repeat=4)),
)
def test_a_bot_has_one_property_of_each_pair(dead: bool, quarantined: bool, in_maintenance: bool, busy: bool) -> None:
    bot = BotFacts(
        BotId("b"),
        (),
        NOW,
        slots=2,
        busy=1 + busy,
        quarantined="unfit" if quarantined else None,
        maintenance="away" if in_maintenance else None,
        missing=dead,
    )
    assert fleet.composite(bot) == (
        "dead" if dead else "alive",
        "quarantined" if quarantined else "healthy",
        "in_maintenance" if in_maintenance else "not_in_maintenance",
        "busy" if busy else "idle",
    )


@pytest.mark.parametrize(
    ("words", "true"),
    [
        ((), True),
        ((Condition.ALIVE,), True),
        ((Condition.ALIVE, Condition.IDLE), True),
        ((Condition.ALIVE, Condition.BUSY), False),
        ((Condition.ALIVE, Condition.DEAD), False),
    ],
)
def test_a_filter_requires_all_of_its_properties(words: tuple[Condition, ...], true: bool) -> None:
    assert fleet.stands(BOT, words) is true


def test_bots_are_counted_for_every_property() -> None:
    bots = [BOT, struct_replace(BOT, busy=4), UNFIT["missing"], UNFIT["quarantined"]]
    assert fleet.counts(bots) == {
        Condition.ALIVE: 3,
        Condition.DEAD: 1,
        Condition.HEALTHY: 3,
        Condition.QUARANTINED: 1,
        Condition.NOT_IN_MAINTENANCE: 4,
        Condition.IN_MAINTENANCE: 0,
        Condition.IDLE: 3,
        Condition.BUSY: 1,
    }


def test_every_property_is_counted_in_an_empty_fleet() -> None:
    assert fleet.counts([]) == dict.fromkeys(Condition, 0)


@pytest.mark.parametrize("unfit", UNFIT.values(), ids=UNFIT)
def test_only_a_bot_that_takes_work_serves(unfit: BotFacts) -> None:
    assert fleet.served(GPU, [struct_replace(BOT, busy=4)])
    assert not fleet.served(GPU, [unfit])
    assert not fleet.served(canonical({"pool": "lab", "gpu": "a100"}), [BOT])


def test_a_lost_task_is_left_to_another_bot_only_if_there_is_one() -> None:
    other = struct_replace(BOT, id=BotId("rack4-12"))
    assert fleet.served_elsewhere(GPU, BOT.id, [BOT, other])
    assert not fleet.served_elsewhere(GPU, BOT.id, [BOT, struct_replace(other, draining=True)])
    assert not fleet.served_elsewhere(GPU, BOT.id, [BOT])


def test_the_capacity_of_a_pool_is_what_its_live_bots_can_run_at_once() -> None:
    elsewhere = struct_replace(BOT, dimensions=canonical({"id": "x", "pool": "other"}))
    assert fleet.capacity("lab", [BOT, struct_replace(BOT, slots=2), elsewhere, *UNFIT.values()]) == 6


def machine(cores: int | None, memory_mb: int | None) -> BotFacts:
    sizes = {"cores": cores, "memory_mb": memory_mb}
    named = {key: str(size) for key, size in sizes.items() if size is not None}
    return struct_replace(BOT, slots=3, dimensions=canonical({"id": "m", "pool": "lab", **named}))


@each_row(
    ("cores", "memory_mb", "adjustment", "forks"),
    [
        (4, 4_096, 0.0, 16),  # the example of AWX's documentation
        (4, 4_096, 1.0, 20),
        (4, 4_096, 0.5, 18),
        (4, 16_384, 1.0, 143),
        (1, 1_024, 1.0, 4),  # less memory than the machine keeps for itself: one fork
        (1, 1_024, 0.0, 1),
        (None, 4_096, 0.5, 20),
        (4, None, 0.5, 16),
        (None, None, 0.5, 3),  # its slots
    ],
)
def test_the_forks_of_a_bot_follow_from_its_processors_and_memory(
    cores: int | None, memory_mb: int | None, adjustment: float, forks: int
) -> None:
    assert fleet.capacity("lab", [machine(cores, memory_mb)], "forks", adjustment) == forks


@pytest.mark.parametrize(
    ("version", "other", "older"),
    [
        ("0.1.0", "0.2.0", True),
        ("0.2.0", "0.1.9", False),
        ("1.9", "1.10", True),
        ("1.0", "1.0.0", False),
        ("1", "1.0.1", True),
        ("2.0rc1", "2.0", False),
        ("0.1.dev3+g1", "0.1.1", True),
        ("", "1.0", False),
        ("nightly", "1.0", False),
        ("1.0", "", False),
        ("0", "0.1", True),
        ("9" * 400, "1.0", False),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, other: str, older: bool) -> None:
    assert fleet.is_older(version, other) is older
    assert (fleet.update_advice(version, other) is not None) is older


def test_losses_within_a_lease_of_each_other_are_one_failure() -> None:
    span = fleet.LEASE_MS + fleet.GUARD_MS
    assert fleet.after_failure(0, None, NOW, fleet.LEASE_MS) == 1
    assert fleet.after_failure(3, Millis(NOW - span), NOW, fleet.LEASE_MS) == 3
    assert fleet.after_failure(3, Millis(NOW - span - 1), NOW, fleet.LEASE_MS) == 4
