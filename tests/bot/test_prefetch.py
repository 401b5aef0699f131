"""How much a bot has in hand follows from how long tasks take, and is forgotten as soon as that may have changed."""

from taskyard.bot.prefetch import PrefetchLimit

NO_OP, MODEST, LONG = 0.000_03, 0.02, 0.2


def fed(slots: int = 2) -> PrefetchLimit:
    appetite = PrefetchLimit(slots)
    appetite.meet("m:noop")
    for _ in range(10):
        appetite.call_took(NO_OP)
    return appetite


def test_what_is_not_known_is_taken_one_a_slot() -> None:
    appetite = PrefetchLimit(2)
    assert (appetite.in_hand, appetite.low, appetite.handful, appetite.short) == (2, 1, 1, True)


def test_short_calls_are_taken_many_at_a_time_and_never_more_than_the_bound() -> None:
    appetite = fed()
    assert (appetite.in_hand, appetite.low, appetite.handful) == (384, 192, 66)


def test_long_calls_are_taken_one_a_slot() -> None:
    appetite = PrefetchLimit(2)
    appetite.call_took(LONG)
    assert (appetite.in_hand, appetite.handful, appetite.short) == (2, 1, False)


def test_of_modest_ones_one_is_taken_ahead_for_all_slots() -> None:
    appetite = PrefetchLimit(2)
    appetite.call_took(MODEST)
    assert (appetite.in_hand, appetite.low, appetite.handful, appetite.short) == (3, 2, 1, False)


def test_one_long_call_among_short_ones_ends_the_hoarding() -> None:
    appetite = fed()
    appetite.call_took(LONG)
    assert appetite.in_hand == 2


def test_a_new_function_and_an_empty_line_end_it_as_well() -> None:
    met, idle = fed(), fed()
    met.meet("m:other")
    idle.forget()
    assert (met.in_hand, idle.in_hand) == (2, 2)


def test_short_processes_are_taken_some_at_a_time_and_long_ones_one_a_slot() -> None:
    appetite = PrefetchLimit(2)
    appetite.program_took(0.001)
    assert (appetite.in_hand, appetite.low) == (20, 10)
    appetite.program_took(1.0)
    assert (appetite.in_hand, appetite.low) == (2, 1)


def test_a_program_that_was_not_met_before_ends_the_hoarding_of_short_ones() -> None:
    appetite = PrefetchLimit(2)
    appetite.meet("/bin/true")
    appetite.program_took(0.001)
    appetite.meet("/bin/true")
    assert appetite.in_hand == 20
    appetite.meet("/bin/other")
    assert appetite.in_hand == 2


def test_a_slow_server_has_more_short_tasks_taken_but_no_more_long_ones() -> None:
    appetite = PrefetchLimit(2)
    appetite.call_took(0.002)
    near = appetite.in_hand
    for _ in range(40):
        appetite.exchange_took(1.0)
    far = appetite.in_hand
    appetite.call_took(LONG)
    assert (near, far, appetite.in_hand) == (10, 49, 2)
