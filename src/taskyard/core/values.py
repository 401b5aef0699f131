"""Values: dataclasses that never change once they are made.

That nobody changes one is checked by mypy, not at run time: a frozen dataclass takes several times as long to make,
and the hot path makes dozens of values for every task.
"""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Make a class a value: compared and hashed by what it holds, without a dictionary, never to be changed."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
