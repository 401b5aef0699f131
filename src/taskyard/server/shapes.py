"""JSON Schemas of what bots and servers tell each other. What passes through as it was written may be anything."""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec

#: What the names of these shapes begin with, since people have shapes with the same names.
PREFIX: Final = "Bot"


def schemas(kinds: Iterable[type]) -> dict[str, Any]:
    """Describe shapes, and the shapes in them, by name."""
    known: dict[type, type] = {}
    twins = [_described(kind, known) for kind in kinds]
    return msgspec.json.schema_components(twins, ref_template="#/components/schemas/{name}")[1]


def name(kind: type) -> str:
    """Say how a shape is called in a description."""
    return f"{PREFIX}{kind.__name__}"


def _described(kind: Any, known: dict[type, type]) -> Any:
    """Give a type that means the same and can be described: a struct's twin, and `Any` for what passes through."""
    if kind is msgspec.Raw:
        return Any
    if get_origin(kind) in (Union, UnionType):
        return reduce(or_, [_described(one, known) for one in get_args(kind)])
    if get_origin(kind) is list:
        return list[_described(get_args(kind)[0], known)]  # type: ignore[misc]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind not in known:
            known[kind] = _twin(kind, known)
        return known[kind]
    return kind


def _twin(kind: type[msgspec.Struct], known: dict[type, type]) -> type:
    fields: list[Any] = []
    for one in msgspec.structs.fields(kind):
        said = (one.encode_name, _described(one.type, known))
        if one.required:
            fields.append(said)
        elif one.default_factory is not msgspec.NODEFAULT:
            fields.append((*said, msgspec.field(default_factory=one.default_factory)))
        else:
            fields.append((*said, None if isinstance(one.default, msgspec.Raw) else one.default))
    twin = msgspec.defstruct(name(kind), fields)
    twin.__doc__ = kind.__doc__
    return twin
