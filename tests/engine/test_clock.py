"""Time and chance."""

from taskyard.core.ids import CHANCE_BITS
from taskyard.core.words import Millis
from taskyard.engine.clock import LEAD_MAX_MS, SystemClock
from taskyard.engine.keys import Mint
from tests.engine.rig import FakeClock


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


def test_words_differ_and_chance_fits_a_key() -> None:
    clock = SystemClock()
    assert len({clock.word() for _ in range(1_000)}) == 1_000
    assert all(0 <= clock.chance() < 1 << CHANCE_BITS for _ in range(1_000))


def test_the_mint_makes_no_key_twice_even_if_the_time_stands_still() -> None:
    class Stopped(FakeClock):
        def tick(self) -> Millis:
            return self.ms

        def chance(self) -> int:
            return 7

    mint = Mint(Stopped())
    minted = [mint.fresh(3) for _ in range(100)]
    keys = [key for one in minted for key in (one.graph, *one.tasks)]
    assert len(set(keys)) == len(keys)
    assert all(one.tasks == sorted(one.tasks) for one in minted)


def test_the_mint_makes_keys_for_a_graph_without_tasks_and_for_the_largest() -> None:
    mint = Mint(FakeClock())
    assert mint.fresh(0).tasks == []
    assert len(set(mint.fresh(1_000_000).tasks)) == 1_000_000
