"""Validate commands before they reach the writer, and list every fault with its path and what the field takes.

The bounds come from the annotations of the commands themselves; those of bots are in `wire/bot_protocol.py`. What
passes can be stored by both databases, so nothing in a command becomes an exception later. Nothing is looked up here:
whether a task, a bot or a lease exists is checked in the transaction.

A message that a bot sent was decoded within its bounds already. `check_decoded` checks only what a decoder cannot; the
full validation runs for commands from Python, and for a message that cannot be decoded, so that all faults are listed.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final, TypeAlias, cast

import msgspec
from msgspec import UNSET, inspect

from taskyard.core import ids
from taskyard.core.admission.rules import STAKE_AFTER_MAX_MS
from taskyard.core.comparison import operator_of
from taskyard.core.graph.errors import Faults, Path, quoted, shown
from taskyard.core.graph.model import DIMENSION_KEY_MAX, DIMENSION_VALUE_MAX, NAME_MAX
from taskyard.core.graph.scalars import KEY, Reader, name_fault
from taskyard.core.matching import ID, OR, POOL, canonical
from taskyard.core.states import Word
from taskyard.lifecycle.commands import Approve, Cancel, Code, Goodbye, Hello, Poll, Publish, Refusal, Rerun
from taskyard.lifecycle.server_attempts import SERVER
from taskyard.wire import bot_protocol
from taskyard.wire.bot_protocol import (
    BOT_DIMENSION_VALUES_MAX,
    BOT_DIMENSIONS_MAX,
    NUMBER_MAX,
    OUTPUTS_MAX,
    REASONS,
    RESULT_MAX,
    RESULTS_MAX,
    SIGNALS,
    Report,
    TaskKey,
)
from taskyard.wire.documents import DEPTH_MAX, is_deep

#: The labels from which a graph may be rerun or canceled in one command; a matrix counts as one.
LABELS_MAX: Final = 100

Command: TypeAlias = Poll | Hello | Goodbye | Cancel | Rerun | Approve | Publish
_Fields: TypeAlias = Mapping[str, Reader]


def check(kind: type, command: object) -> Refusal | None:
    """Validate every field of a command, and what the fields must be together."""
    return _refusal(kind.__name__.lower(), _faults_of(kind, command))


def check_decoded(command: Poll) -> Refusal | None:
    """Validate a poll that was decoded within its bounds. Bots poll all the time, so only what a decoder cannot check.

    These few comparisons cost less than reading each field (`benchmarks.endtoend`).
    """
    fits = (
        _is_plain(command.bot)
        and _is_plain(command.session)
        and (not command.poll or _is_plain(command.poll))
        and (not command.reports or _are_plain_reports(command.reports))
        and all(one.progress is None or "\0" not in one.progress for one in command.renewals)
        and (not command.outputs or sum(len(one.body) for one in command.outputs) <= OUTPUTS_MAX)
    )
    return None if fits else check(Poll, command)


def check_undecodable(kind: type, message: object) -> Refusal | None:
    """List the faults of a message that cannot be decoded as `kind`; `message` is its body as plain JSON values."""
    return _refusal(_class(kind).__name__.lower(), _faults_of(kind, _held(inspect.type_info(kind), message)))


def check_request(**arguments: object) -> Refusal | None:
    """Validate arguments of the engine's methods, by the names in `ARGUMENTS` and `LIMIT_ARGUMENTS`."""
    faults = Faults()
    for name, value in arguments.items():
        (ARGUMENTS.get(name) or LIMIT_ARGUMENTS[name]).read(value, (name,), faults)
    return _refusal("request", faults)


def check_submission(graph_id: str | None, key: str, actor: str, submitter: str, user: str = "") -> Refusal | None:
    """Validate the arguments beside a new graph; None leaves the id to the engine."""
    chosen = {} if graph_id is None else {"graph_id": graph_id}
    return check_request(**chosen, key=key, actor=actor, submitter=submitter, user=user)


@cache
def fields(kind: type) -> _Fields:
    """Return the reader of each field of a command, or of a part of one."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType), "commands are structs"
    return {one.name: _reader(one.type) for one in info.fields}


def _faults_of(kind: type, command: object) -> Faults:
    faults = Faults()
    _read_struct(kind, command, (), faults)
    if type(command) is _class(kind):
        if isinstance(command, Cancel | Rerun):
            _check_subject(command, faults)
        if isinstance(command, Hello) and not faults.noted:
            _check_own_dimensions(command, faults)
    return faults


def _refusal(what: str, faults: Faults) -> Refusal | None:
    if not faults.noted:
        return None
    listed = faults.listed()
    return Refusal(Code.INVALID, f"the {what} has {len(listed)} fault{'s' * (len(listed) > 1)}", listed)


def _check_subject(command: Cancel | Rerun, faults: Faults) -> None:
    if command.task is None and command.graph is None:
        faults.add(("task",), "names nothing, and neither does graph: name a task or a graph")


def _check_own_dimensions(command: Hello, faults: Faults) -> None:
    """Check the id and the pool of a bot: with another bot's id it would get what is pinned to that bot."""
    dimensions = dict(command.dimensions)
    if dimensions.get(ID) != (command.bot,):
        faults.add(("dimensions", ID), f"must be the name of the bot, {quoted(command.bot)}, and nothing else")
    if command.bot == SERVER.bot:
        faults.add(("bot",), "is the name of the server itself; choose another name")
    if POOL not in dimensions:
        faults.add(("dimensions",), f"needs the key {quoted(POOL)}")


# What a decoder cannot check.


def _is_plain(name: str) -> bool:
    """Tell quickly that a name has no hidden characters; False may also mean an unusual name that is allowed."""
    return name.isascii() and name.isprintable() and name[0] != " " and name[-1] != " "


def _are_plain_reports(reports: tuple[Report[TaskKey], ...]) -> bool:
    total = 0
    for one in reports:
        if one.signal not in SIGNALS or not (one.reason is None or one.reason in REASONS):
            return False
        result = bytes(one.result)
        if result:
            total += len(result)  # bytes: at least as many as characters
            if _result_fault(result) is not None:
                return False
    return total <= RESULTS_MAX


# From the annotation of a field to its reader.
#
# Values are made in Python, so types have to be exact: a subclass may do anything, and `True` is not a number.


def _reader(kind: inspect.Type) -> Reader:
    """Make the reader of a field from its annotation, which msgspec has parsed."""
    return _READERS[type(kind)](kind)


def _marked(kind: inspect.Metadata) -> Reader:
    """Make the reader of a field with marks beside its bounds."""
    inner, marks = kind.type, kind.extra or {}
    if "total" in marks:
        return within_total(_reader(inner), *marks["total"])
    if "one_of" in marks:
        return one_of(inner.cls, marks["one_of"])  # type: ignore[attr-defined]
    if "dimensions" in marks:
        return dimensions()
    if "text" not in marks:
        return _reader(inner)
    assert isinstance(inner, inspect.StrType), "only strings are texts"
    read = name if marks["text"] == "name" else text
    return read(inner.max_length or NAME_MAX, empty=not inner.min_length)


def _number(kind: inspect.IntType) -> Reader:
    return exactly(int, "an integer") if kind.ge is None or kind.le is None else number(kind.ge, kind.le)


def _seconds(kind: inspect.FloatType) -> Reader:
    low, high = kind.ge or 0, kind.le or NUMBER_MAX
    return exactly(float, "a number of seconds", lambda value: low <= value <= high)


def _some_bytes(kind: inspect.BytesType) -> Reader:
    most = kind.max_length or NUMBER_MAX
    return exactly(bytes, f"at most {most} bytes", lambda value: len(value) <= most)


def _not_none(kind: inspect.UnionType) -> inspect.Type:
    (inner,) = (one for one in kind.types if not isinstance(one, inspect.NoneType))
    return inner


_READERS: Final[Mapping[type, Callable[[Any], Reader]]] = {
    inspect.Metadata: _marked,
    inspect.UnionType: lambda kind: or_none(_reader(_not_none(kind))),
    inspect.CustomType: lambda _: number(0, NUMBER_MAX),  # TaskKey
    inspect.IntType: _number,
    inspect.FloatType: _seconds,
    inspect.BoolType: lambda _: exactly(bool, "True or False"),
    inspect.StrType: lambda kind: exactly(str, "a string") if kind.pattern is None else of_form(kind.pattern),
    inspect.BytesType: _some_bytes,
    inspect.RawType: lambda _: result(),
    inspect.VarTupleType: lambda kind: several(_reader(kind.item_type), 0, kind.max_length or NUMBER_MAX),
    inspect.DictType: lambda kind: string_lists(kind.max_length or NUMBER_MAX),
    inspect.StructType: lambda kind: Reader(f"a {_class(kind.cls).__name__}", partial(_read_struct, kind.cls)),
}


def _class(kind: Any) -> type:
    """Return the class of a struct type: that of `Report[TaskKey]` is `Report`."""
    return cast("type", getattr(kind, "__origin__", kind))


def _read_struct(kind: Any, value: object, at: Path, faults: Faults) -> None:
    if type(value) is not _class(kind):
        faults.add(at, f"must be a {_class(kind).__name__}; got {named(value)}")
        return
    for name, reader in fields(kind).items():
        held = getattr(value, name)
        if held is UNSET:
            faults.add((*at, name), f"is missing; it must be {reader.takes}")
        else:
            reader.read(held, (*at, name), faults)


# From JSON values to what the fields hold.


def _held(kind: inspect.Type, value: Any) -> Any:
    """Turn JSON values into what a field holds; a value that does not fit stays as it is, to be listed as a fault."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        return None if value is None else _held(_not_none(kind), value)
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        given = {one.name: _held(one.type, value[one.name]) for one in kind.fields if one.name in value}
        missing = {one.name: UNSET for one in kind.fields if one.required and one.name not in value}
        return _class(kind.cls)(**given, **missing)
    if isinstance(kind, inspect.VarTupleType) and isinstance(value, list):
        return tuple(_held(kind.item_type, one) for one in value)
    return _held_plain(kind, value)


def _held_plain(kind: inspect.Type, value: Any) -> Any:
    if isinstance(kind, inspect.RawType):
        return msgspec.Raw(msgspec.json.encode(value))
    plain = {inspect.BytesType: bytes, inspect.FloatType: float}.get(type(kind)) or getattr(kind, "cls", None)
    if plain is None:
        return value
    try:
        return msgspec.convert(value, plain, dec_hook=task_key)
    except (msgspec.ValidationError, ValueError):
        return value


def task_key(kind: type, value: Any) -> object:
    """Decode the id of a task to its key; the hook of every decoder of bot messages."""
    if kind is TaskKey and type(value) is str:
        return ids.key_of(value)
    raise ValueError("must be the id of a task")


# Readers of single values.


def exactly(kind: type, takes: str, fits: Callable[[Any], bool] = lambda _: True) -> Reader:
    """Take a value of one type, and of no other."""

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not kind or not fits(value):
            faults.add(at, f"must be {takes}; got {named(value)}")

    return Reader(takes, read)


def of_form(pattern: str) -> Reader:
    """Take a string of a fixed form."""
    form = re.compile(pattern)
    return exactly(str, f"a string that matches {pattern}", lambda value: form.search(value) is not None)


def number(low: int, high: int) -> Reader:
    """Take a whole number."""
    return exactly(int, f"an integer from {low} to {high}", lambda value: low <= value <= high)


def one_of(kind: type[Word], allowed: frozenset[Any]) -> Reader:
    """Take one of some words."""
    listed = ", ".join(one.text for one in kind if one in allowed)
    return exactly(kind, f"a {kind.__name__}: {listed}", lambda value: value in allowed)


def name(longest: int = NAME_MAX, *, empty: bool = False) -> Reader:
    """Take a name, in which nothing is hidden."""
    takes = f"a string of {0 if empty else 1} to {longest} characters, none hidden"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not str:
            faults.add(at, f"must be {takes}; got {named(value)}")
        elif (value or not empty) and (fault := name_fault(value, longest)):
            faults.add(at, fault)

    return Reader(takes, read)


def several(one: Reader, least: int, most: int) -> Reader:
    """Take a tuple of values that are read alike."""
    takes = f"a tuple of {least} to {most}, each {one.takes}"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not tuple:
            faults.add(at, f"must be {takes}; got {named(value)}")
        elif not least <= len(value) <= most:
            faults.add(at, f"must hold {least} to {most}; got {len(value)}")
        else:
            for place, each in enumerate(value):
                one.read(each, (*at, place), faults)

    return Reader(takes, read)


def text(longest: int, *, empty: bool = False) -> Reader:
    """Take any text that both databases keep."""
    shortest = 0 if empty else 1
    takes = f"a string of {shortest} to {longest} characters, without NUL"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not str:
            faults.add(at, f"must be {takes}; got {named(value)}")
        elif not shortest <= len(value) <= longest:
            faults.add(at, f"must be {takes}; got {len(value)}")
        elif "\0" in value:
            faults.add(at, "holds a NUL character; remove it")
        elif not _can_be_written(value):
            faults.add(at, "holds a lone surrogate, which is not a character; remove it")

    return Reader(takes, read)


def or_none(reader: Reader) -> Reader:
    """Take what another reader does, or None."""

    def read(value: object, at: Path, faults: Faults) -> None:
        if value is not None:
            reader.read(value, at, faults)

    return Reader(f"{reader.takes}; or None", read)


def key() -> Reader:
    """Take an id."""
    takes = f"an id, {ids.KEY_DIGITS} hexadecimal digits"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not str:
            faults.add(at, f"must be {takes}; got {named(value)}")
            return
        try:
            ids.key_of(value)
        except ValueError as fault:
            faults.add(at, str(fault))

    return Reader(takes, read)


def result() -> Reader:
    """Take the JSON that an attempt published, or nothing."""
    takes = f"JSON as msgspec.Raw, at most {RESULT_MAX} characters and {DEPTH_MAX} deep"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not msgspec.Raw:
            faults.add(at, f"must be {takes}; got {named(value)}")
        elif fault := _result_fault(bytes(value)):
            faults.add(at, fault)

    return Reader(takes, read)


def _result_fault(body: bytes) -> str | None:
    try:
        size = len(body) if body.isascii() else len(body.decode())
    except UnicodeDecodeError:
        return "is not UTF-8"
    if size > RESULT_MAX:
        return f"has {size} characters; at most {RESULT_MAX}"
    if b"\0" in body:
        return "holds a NUL character; remove it"
    return f"is nested more than {DEPTH_MAX} deep" if is_deep(body) else None


def within_total(items: Reader, field: str, most: int, unit: str) -> Reader:
    """Take items of which one field is not too large in all of them together."""

    def read(value: Any, at: Path, faults: Faults) -> None:
        before = faults.noted
        items.read(value, at, faults)
        if faults.noted == before:
            size = sum(_size(getattr(one, field)) for one in value)
            if size > most:
                faults.add(at, f"hold {size} {unit} together; at most {most} in one poll")

    return Reader(items.takes, read)


def _size(body: bytes | msgspec.Raw) -> int:
    """Return the size of output in bytes, and that of a result in characters."""
    return len(bytes(body).decode()) if isinstance(body, msgspec.Raw) else len(body)


def string_lists(most: int) -> Reader:
    """Take an object whose values are lists of strings."""
    takes = f"an object of at most {most} keys, each with a list of strings"

    def fits(value: dict[object, object]) -> bool:
        return len(value) <= most and all(map(_is_string_list, value.values()))

    return exactly(dict, takes, fits)


def _is_string_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def dimensions() -> Reader:
    """Take what a bot has."""
    takes = "dimensions in canonical form, with the bot's own id and a pool"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not tuple or not all(map(_is_dimension, value)):
            faults.add(at, f"must be {takes}; got {named(value)}")
        elif len(value) > BOT_DIMENSIONS_MAX:
            faults.add(at, f"must hold at most {BOT_DIMENSIONS_MAX} keys; got {len(value)}")
        else:
            before = faults.noted
            for key, values in value:
                _read_dimension(key, values, (*at, key), faults)
            if faults.noted == before and canonical(dict(value)) != value:
                faults.add(at, "must have each key and each value once, in their order: use `matching.canonical`")

    return Reader(takes, read)


def _is_dimension(one: object) -> bool:
    if type(one) is not tuple or len(one) != 2:
        return False
    key, values = one
    return type(key) is str and type(values) is tuple and all(type(value) is str for value in values)


def _read_dimension(key: str, values: tuple[str, ...], at: Path, faults: Faults) -> None:
    if KEY.fullmatch(key) is None:
        faults.add(at, f"is no dimension key; use 1 to {DIMENSION_KEY_MAX} of the characters A-Z a-z 0-9 _ . -")
    if not 1 <= len(values) <= BOT_DIMENSION_VALUES_MAX:
        faults.add(at, f"must hold 1 to {BOT_DIMENSION_VALUES_MAX} values; got {len(values)}")
        return
    for place, value in enumerate(values):
        if fault := name_fault(value, DIMENSION_VALUE_MAX):
            faults.add((*at, place), fault)
        elif OR in value:
            faults.add((*at, place), f"must not hold {OR}: a bot has a value or has it not")
        elif found := operator_of(value):
            faults.add((*at, place), f"must not begin with {found}: tasks compare, a bot has a value")


def named(value: object) -> str:
    """Name a value in a message. What is not plain is named by its type only: it may hold or do anything."""
    if isinstance(value, Word):
        return f"{type(value).__name__}.{value.name}"
    plain = value is None or type(value) in (str, int, float, bool)
    return shown(value) if plain else f"a {type(value).__name__}"


def _can_be_written(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


#: Arguments that come beside a document, or with a command of a person.
ARGUMENTS: Final[_Fields] = {
    "graph_id": key(),
    "task_id": key(),
    "key": name(empty=True),
    "actor": name(empty=True),
    "submitter": name(empty=True),
    "user": name(empty=True),
    "labels": several(name(), 1, LABELS_MAX),
}
#: Arguments that set a limit.
LIMIT_ARGUMENTS: Final[_Fields] = {
    "name": name(),
    "capacity": or_none(number(0, NUMBER_MAX)),
    "from_bots": exactly(bool, "True or False"),
    "total": number(0, NUMBER_MAX),
    "stake_after_ms": or_none(number(0, STAKE_AFTER_MAX_MS)),
}
#: Every command, and every part of one.
COMMANDS: Final[tuple[Any, ...]] = (
    Hello,
    Poll,
    bot_protocol.Report[TaskKey],
    bot_protocol.Stats,
    bot_protocol.Renewal[TaskKey],
    bot_protocol.Output[TaskKey],
    bot_protocol.Begun[TaskKey],
    Goodbye,
    Publish,
    Cancel,
    Rerun,
    Approve,
)
