"""Compared dimensions: numbers, not texts, and equal comparisons are one queue."""

from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from taskyard.core import comparison
from taskyard.core.matching import absent, canonical, combinations, dimension_hash, matches, meant_keys, missing
from tests.each_row import each_row

decimals = st.decimals(-1000, 1000, places=3).map(lambda value: format(value, "f"))
operators = st.sampled_from(sorted(comparison.OPERATORS))
BOT = canonical({"id": "b1", "pool": "lab", "memory_gb": ["32", "large"], "zone": "b"})


@each_row(
    ("asked", "met"),
    [
        (">=32", True),
        (">=32.0", True),
        (">=9", True),  # as texts, "32" comes before "9"
        (">32", False),
        (">31.9", True),
        ("<=32", True),
        ("<32", False),
        ("<100", True),
        ("!=32", False),
        ("!=32.00", False),
        ("!=31", True),
        (">=-5", True),
        ("32", True),
        ("32.0", False),  # without an operator it is a text
        ("<1|>=32", True),
        ("<1|large", True),
        ("<1|>32", False),
        ([">=16", "<64"], True),
        ([">=16", "<32"], False),
    ],
)
def test_a_number_of_the_bot_meets_a_comparison(asked: object, met: bool) -> None:
    assert matches(canonical({"memory_gb": asked}), BOT) is met  # type: ignore[dict-item]


def test_a_bot_without_a_number_meets_only_what_is_not_equal() -> None:
    for key in ("zone", "disk_gb"):
        met = [one for one in comparison.OPERATORS if matches(canonical({key: f"{one}0"}), BOT)]
        assert met == ["!="]


def test_any_one_of_several_numbers_is_enough_but_for_unequal() -> None:
    bot = canonical({"id": "b1", "pool": "lab", "ports": ["1", "10"]})
    assert matches(canonical({"ports": [">9", "<2"]}), bot)
    assert not matches(canonical({"ports": "!=10"}), bot)


@given(operators, decimals, st.lists(decimals, min_size=1, max_size=4))
def test_comparisons_follow_the_numbers(operator: str, operand: str, has: list[str]) -> None:
    numbers, asked = [Fraction(one) for one in has], Fraction(operand)
    expected = {
        ">=": max(numbers) >= asked,
        ">": max(numbers) > asked,
        "<=": min(numbers) <= asked,
        "<": min(numbers) < asked,
        "!=": asked not in numbers,
    }[operator]
    wanted = canonical({"n": f"{operator}{operand}"})
    had = canonical({"n": has})
    assert matches(wanted, had) is expected
    assert (missing(wanted, had) == ()) is expected


@each_row(
    ("written", "kept"),
    [
        (">=16", ">=16"),
        (">=16.00", ">=16"),
        (">=016", ">=16"),
        ("<0.50", "<0.5"),
        ("!=-0.0", "!=0"),
        (">100", ">100"),
        (">=" + "9" * 40, ">=" + "9" * 40),
        ("16.00", "16.00"),  # a text
        ("!important", "!important"),
    ],
)
def test_equal_comparisons_are_written_alike(written: str, kept: str) -> None:
    assert canonical({"n": written}) == (("n", (kept,)),)


@given(operators, decimals, st.integers(0, 3))
def test_equal_comparisons_are_one_queue(operator: str, operand: str, zeros: int) -> None:
    longer = format(Decimal(operand), "f") + "0" * zeros
    once = canonical({"pool": "lab", "n": f"{operator}{operand}"})
    assert canonical({"pool": "lab", "n": f"{operator}{longer}"}) == once
    assert canonical(dict(once)) == once
    assert dimension_hash(once) != dimension_hash(canonical({"pool": "lab", "n": operand}))


def test_alternatives_of_a_comparison_expand_like_others() -> None:
    assert combinations(canonical({"n": ">=2|x"})) == (canonical({"n": ">=2"}), canonical({"n": "x"}))


def test_what_no_bot_has_is_judged_bot_by_bot() -> None:
    fleet = [canonical({"id": "b1", "n": "1"}), canonical({"id": "b2", "n": "2"})]
    assert absent(canonical({"n": "!=1"}), fleet) == ()
    assert absent(canonical({"n": [">2", "<2"]}), fleet) == canonical({"n": ">2"})


@each_row(
    ("key", "meant"),
    [
        ("Memory_GB", "memory_gb"),
        ("memory-gb", "memory_gb"),
        ("memroy_gb", "memory_gb"),
        ("memory", "memory_gb"),
        ("zones", "zone"),
        ("zone", None),
        ("gpu", None),
    ],
)
def test_a_key_that_no_bot_has_is_taken_for_a_slip(key: str, meant: str | None) -> None:
    asked = canonical({"pool": "lab", key: "1"})
    assert dict(meant_keys(asked, [BOT])) == ({} if meant is None else {key: meant})


def test_only_keys_of_the_same_pool_are_hinted_at() -> None:
    assert meant_keys(canonical({"pool": "default", "Memory_GB": ">=1"}), [BOT]) == ()
