"""How much a bot prefetches depends on how long tasks take, and is reset as soon as that may have changed."""

from taskyard.bot.prefetch import PrefetchLimit

NO_OP, MODEST, LONG = 0.000_03, 0.02, 0.2


def fed(slots: int = 2) -> PrefetchLimit:
    limit = PrefetchLimit(slots)
    limit.note_name("m:noop")
    for _ in range(10):
        limit.record_call(NO_OP)
    return limit


def test_tasks_of_unknown_length_are_taken_one_per_slot() -> None:
    limit = PrefetchLimit(2)
    assert (limit.target, limit.refill_at, limit.calls_per_batch, limit.is_short) == (2, 1, 1, True)


def test_many_short_calls_are_taken_and_never_more_than_the_bound() -> None:
    limit = fed()
    assert (limit.target, limit.refill_at, limit.calls_per_batch) == (384, 192, 66)


def test_long_calls_are_taken_one_per_slot() -> None:
    limit = PrefetchLimit(2)
    limit.record_call(LONG)
    assert (limit.target, limit.calls_per_batch, limit.is_short) == (2, 1, False)


def test_one_call_of_modest_length_is_taken_ahead_for_all_slots() -> None:
    limit = PrefetchLimit(2)
    limit.record_call(MODEST)
    assert (limit.target, limit.refill_at, limit.calls_per_batch, limit.is_short) == (3, 2, 1, False)


def test_one_long_call_among_short_ones_ends_the_prefetching() -> None:
    limit = fed()
    limit.record_call(LONG)
    assert limit.target == 2


def test_a_new_function_and_an_empty_queue_end_the_prefetching() -> None:
    met, idle = fed(), fed()
    met.note_name("m:other")
    idle.reset()
    assert (met.target, idle.target) == (2, 2)


def test_some_short_programs_are_taken_ahead_and_long_ones_one_per_slot() -> None:
    limit = PrefetchLimit(2)
    limit.record_program(0.001)
    assert (limit.target, limit.refill_at) == (20, 10)
    limit.record_program(1.0)
    assert (limit.target, limit.refill_at) == (2, 1)


def test_a_new_program_ends_the_prefetching_of_short_ones() -> None:
    limit = PrefetchLimit(2)
    limit.note_name("/bin/true")
    limit.record_program(0.001)
    limit.note_name("/bin/true")
    assert limit.target == 20
    limit.note_name("/bin/other")
    assert limit.target == 2


def test_with_a_slow_server_more_short_tasks_are_taken_but_no_more_long_ones() -> None:
    limit = PrefetchLimit(2)
    limit.record_call(0.002)
    near = limit.target
    for _ in range(40):
        limit.record_exchange(1.0)
    far = limit.target
    limit.record_call(LONG)
    assert (near, far, limit.target) == (10, 49, 2)
