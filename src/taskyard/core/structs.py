"""Immutable records, cheap enough to make dozens of them in each task's life.

They are compared and hashed by their fields. msgspec makes one in a fraction of the time that a frozen dataclass takes;
the core uses nothing else of it but the encoder that gives equal values equal texts.
"""

from typing import TypeVar, cast, dataclass_transform

import msgspec

T = TypeVar("T")
#: What a class has that its value gets anew.
_ANEW = ("__annotations__", "__dict__", "__weakref__")


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make a class a value. It has no base class; a default is immutable."""
    return _made(cls, terse=False)


@dataclass_transform(frozen_default=True)
def terse_value(cls: type[T]) -> type[T]:
    """Make a class a value that leaves out, where it is written down, what it was not given.

    A part that equals its default may be written or left out: two texts can mean the same.
    """
    return _made(cls, terse=True)


def _made(cls: type[T], terse: bool) -> type[T]:
    kinds = cls.__annotations__
    fields = [(name, kind, *((cls.__dict__[name],) if name in cls.__dict__ else ())) for name, kind in kinds.items()]
    rest = {name: one for name, one in cls.__dict__.items() if name not in kinds and name not in _ANEW}
    # Values contain no reference cycles, so the garbage collector need not track them.
    made = msgspec.defstruct(
        cls.__name__, fields, namespace=rest, module=cls.__module__, frozen=True, gc=False, omit_defaults=terse
    )
    made.__qualname__ = cls.__qualname__
    return cast("type[T]", made)


def defaults(kind: type) -> tuple[tuple[str, object], ...]:
    """Return the parts of a kind of value, each with its default; a part that has none is equal to no default."""
    return tuple((part.name, part.default) for part in msgspec.structs.fields(kind))


def struct_replace(one: T, **changes: object) -> T:
    """Return the same value with some of its parts changed."""
    return msgspec.structs.replace(one, **changes)  # type: ignore[type-var]


def canonical_text(plain: object) -> str:
    """Write a value of plain JSON types as JSON, the same for every order of its keys."""
    return _CANONICAL(plain).decode()


_CANONICAL = msgspec.json.Encoder(order="deterministic").encode
