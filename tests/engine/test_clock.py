"""Clocks and random numbers."""

import pytest

from taskyard.core.ids import CHANCE_BITS
from taskyard.core.states import Millis
from taskyard.engine.clock import LEAD_MAX_MS, SystemClock
from taskyard.engine.submit import KeyGenerator
from tests.engine.harness import FakeClock
from tests.lifecycle.harness import START


class Machine:
    """A machine whose system clock is ahead of the true time, and runs at a given speed."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.true_ms = START
        self.clock = SystemClock(lambda: (self.true_ms + ahead_ms) * 1_000_000, lambda: self.true_ms * 1_000_000)

    def advance(self, ms: int) -> None:
        self.true_ms = Millis(self.true_ms + ms)

    def follow(self, other_ms: int = 0, taking_ms: int = 0) -> None:
        """Follow a clock that is ahead of the true time; it is read half-way between question and answer."""

        def ask() -> Millis:
            self.advance(taking_ms // 2)
            answer = Millis(self.true_ms + other_ms)
            self.advance(taking_ms // 2)
            return answer

        self.clock.follow(ask)


def test_time_never_goes_back() -> None:
    clock = SystemClock()
    moments = [clock.now() for _ in range(1_000)]
    assert moments == sorted(moments)


def test_every_birth_has_a_moment_of_its_own_and_the_time_follows() -> None:
    clock = SystemClock()
    births = [clock.tick() for _ in range(500)]
    assert len(set(births)) == len(births)
    assert clock.now() >= births[-1]


def test_a_flood_of_births_does_not_run_away_from_the_time() -> None:
    clock = SystemClock()
    began = clock.now()
    births = [clock.tick() for _ in range(20_000)]
    assert births == sorted(births)
    assert births[-1] - began <= clock.now() - began + LEAD_MAX_MS


@pytest.mark.parametrize("ahead", [-20_000, 0, 20_000])
def test_a_clock_that_follows_another_from_the_start_has_its_time(ahead: int) -> None:
    machine = Machine(ahead)
    machine.follow(other_ms=5, taking_ms=900)
    assert machine.clock.now() == machine.true_ms + 5
    machine.advance(60_000)
    assert machine.clock.now() == machine.true_ms + 5


def test_a_clock_without_a_database_to_follow_uses_the_system_clock() -> None:
    machine = Machine(20_000)
    machine.clock.follow(lambda: None)
    assert machine.clock.now() == machine.true_ms + 20_000


def test_an_answer_that_took_too_long_is_not_believed() -> None:
    machine = Machine()
    machine.follow(other_ms=7_000, taking_ms=1_002)
    assert machine.clock.now() == machine.true_ms


def test_a_clock_that_is_behind_jumps_ahead_at_once() -> None:
    machine = Machine()
    began = machine.clock.now()
    machine.follow(other_ms=3_600_000)
    assert machine.clock.now() == began + 3_600_000


def test_a_clock_that_is_ahead_goes_slower_until_the_other_has_caught_up_and_never_back() -> None:
    machine = Machine()
    began = machine.clock.now()
    moments = [began]
    for _ in range(6):
        machine.advance(2_500)
        moments.append(machine.clock.now())
        machine.advance(2_500)
        machine.follow(other_ms=-10_000)
        moments.append(machine.clock.now())
    assert moments == sorted(moments)
    assert moments[-1] == machine.true_ms - 10_000
    gained = [then - now for now, then in zip(moments[::2], moments[2::2], strict=False)]
    assert gained == [2_500, 2_500, 2_500, 2_500, 5_000, 5_000]


def test_random_words_differ_and_random_numbers_fit_a_key() -> None:
    clock = SystemClock()
    assert len({clock.word() for _ in range(1_000)}) == 1_000
    assert all(0 <= clock.chance() < 1 << CHANCE_BITS for _ in range(1_000))


def test_the_mint_makes_no_key_twice_even_if_the_time_stands_still() -> None:
    class Stopped(FakeClock):
        def tick(self) -> Millis:
            return self.ms

        def chance(self) -> int:
            return 7

    mint = KeyGenerator(Stopped())
    minted = [mint.generate(3) for _ in range(100)]
    keys = [key for one in minted for key in (one.graph, *one.tasks)]
    assert len(set(keys)) == len(keys)
    assert all(one.tasks == sorted(one.tasks) for one in minted)


def test_the_mint_makes_keys_for_a_graph_without_tasks_and_for_the_largest() -> None:
    mint = KeyGenerator(FakeClock())
    assert mint.generate(0).tasks == []
    assert len(set(mint.generate(1_000_000).tasks)) == 1_000_000
