"""When a delivery that failed is tried again, and when it is given up."""

from taskyard.core.states import Millis
from taskyard.core.webhooks import (
    AGE_MAX_MS,
    ANSWERED_MAX_MS,
    PAUSE_MAX_MS,
    PAUSE_MIN_MS,
    REFUSALS_MAX,
    Failure,
    failure_of,
    pause_after,
)
from tests.each_row import each_row

FIRST = Millis(1_000_000)
MOST = 2**16 - 1


@each_row(
    ("status", "failure"),
    [
        (200, None),
        (204, None),
        (301, Failure.ANSWERED),  # redirects are not followed
        (400, Failure.REFUSED),
        (410, Failure.REFUSED),
        (408, Failure.ANSWERED),
        (429, Failure.ANSWERED),
        (500, Failure.ANSWERED),
        (503, Failure.ANSWERED),
    ],
)
def test_an_answer_says_whether_a_later_try_may_succeed(status: int, failure: Failure | None) -> None:
    assert failure_of(status) is failure


@each_row(
    ("failure", "tries", "tried_ms", "age_ms", "goes_on"),
    [
        (Failure.REFUSED, REFUSALS_MAX - 1, AGE_MAX_MS, AGE_MAX_MS, True),
        (Failure.REFUSED, REFUSALS_MAX, 0, 0, False),
        (Failure.ANSWERED, 99, ANSWERED_MAX_MS - 1, AGE_MAX_MS, True),
        (Failure.ANSWERED, 1, ANSWERED_MAX_MS, 0, False),
        (Failure.UNREACHABLE, 99, AGE_MAX_MS, AGE_MAX_MS - 1, True),
        (Failure.UNREACHABLE, 1, 0, AGE_MAX_MS, False),
    ],
)
def test_each_kind_of_failure_has_its_own_end(
    failure: Failure, tries: int, tried_ms: int, age_ms: int, goes_on: bool
) -> None:
    now = Millis(FIRST + tried_ms)
    assert (pause_after(failure, tries, FIRST, now - age_ms, now, 0) is not None) == goes_on


def test_pauses_double_up_to_a_limit_and_vary_by_chance() -> None:
    for chance, share in ((0, 2), (MOST, 1)):
        pauses = [pause_after(Failure.UNREACHABLE, tries, FIRST, FIRST, FIRST, chance) for tries in (1, 2, 3, 50)]
        wanted = [one // share for one in (PAUSE_MIN_MS, 2 * PAUSE_MIN_MS, 4 * PAUSE_MIN_MS, PAUSE_MAX_MS)]
        assert all(
            found is not None and abs(found - want) <= want // 1_000 + 1
            for found, want in zip(pauses, wanted, strict=True)
        )
