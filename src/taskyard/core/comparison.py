"""Compared dimensions: `memory_gb: ">=16"` is met by a bot that has any number from 16 on.

A comparison is an operator and a decimal number. It compares numbers, not texts: `>=9` is met by `16`, and `!=16` is
not met by `16.0`. Any one number of a bot is enough, but for `!=`, which wants none to be equal. A value that is no
decimal number meets only `!=`, and so does a bot that has nothing of the key.
"""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Final

#: What a comparison begins with; the longer operators first.
OPERATORS: Final[Mapping[str, Callable[[Decimal, Decimal], bool]]] = MappingProxyType(
    {">=": operator.ge, "<=": operator.le, "!=": operator.ne, ">": operator.gt, "<": operator.lt}
)
#: What ends a comparison with an amount that a task does not only ask for but takes while it runs.
TAKEN: Final = " taken"
#: Wrong operators that people write, with the operator that they mean; "" means none.
_MISWRITTEN: Final = MappingProxyType({"=>": ">=", "=<": "<=", "==": ""})
_FIRST: Final = frozenset("<>!")
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
#: More numbers than the bots of a large fleet have in common.
_NUMBERS_KEPT: Final = 20_000


def operator_of(text: str) -> str:
    """Return the operator that a value begins with, or the empty text."""
    return next((one for one in OPERATORS if text.startswith(one)), "") if text[:1] in _FIRST else ""


@lru_cache(maxsize=_NUMBERS_KEPT)
def number(text: str) -> Decimal | None:
    """Read a decimal number; None if the text is none."""
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def canonical(text: str) -> str:
    """Write equal comparisons alike: `>=16.0` is `>=16`. What is no comparison stays as it is."""
    found = operator_of(text)
    operand = number(text[len(found) :]) if found else None
    return text if operand is None else f"{found}{plain(operand)}"


def plain(value: Decimal) -> str:
    """Write a number without an exponent and without needless zeros."""
    text = format(value, "f") if value else "0"
    return text.rstrip("0").rstrip(".") if "." in text else text


def taken(amount: Decimal) -> str:
    """Write that a bot must have an amount of something in all, and that the task takes it."""
    return f">={plain(amount)}{TAKEN}"


def amount_taken(text: str) -> Decimal | None:
    """Read what `taken` wrote; None for any other value."""
    return number(text[2 : -len(TAKEN)]) if text.endswith(TAKEN) and text.startswith(">=") else None


def meets(values: Iterable[str], asked: str) -> bool:
    """Whether any one of a bot's values meets a comparison; false if `asked` is none."""
    found = operator_of(asked)
    operand = number(asked[len(found) :].removesuffix(TAKEN)) if found else None
    if operand is None:
        return False
    numbers = (had for one in values if (had := number(one)) is not None)
    if found == "!=":
        return all(had != operand for had in numbers)
    compare = OPERATORS[found]
    return any(compare(had, operand) for had in numbers)


def fault(text: str) -> str | None:
    """Return what is wrong with a value that begins like a comparison; None if nothing is."""
    found = operator_of(text)
    if found:
        return None if number(text[len(found) :]) is not None else _TAKES
    meant = _MISWRITTEN.get(text[:2])
    if meant is None or number(text[2:]) is None:
        return None
    return f"begins with {text[:2]}, which is no operator; write {meant}{text[2:]}"


_TAKES: Final = f"must be one of {' '.join(OPERATORS)} and a decimal number, such as >=16"
