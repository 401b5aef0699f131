"""The look at the door: whether what somebody asks for can be asked at all, before the writer hears of it.

Every fault of a command is listed at once, with its path and what the field takes. Whatever passes can be stored by
both databases, so nothing that a caller writes becomes an exception later. Here nothing is looked up: whether a task,
a bot or a lease is there is for the rooms to say.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from taskyard.core import ids
from taskyard.core.budget import WORDS_ON_AN_ATTEMPT
from taskyard.core.graph.dimensions import KEY
from taskyard.core.graph.faults import Faults, Path, quoted, shown
from taskyard.core.graph.fields import Reader
from taskyard.core.graph.limits import DIMENSION_KEY_MAX, DIMENSION_VALUE_MAX, NAME_MAX
from taskyard.core.graph.readers import name_fault
from taskyard.core.matching import ID, OR, POOL, canonical
from taskyard.core.words import Reason, Signal, Word
from taskyard.engine.bounds import (
    BOT_DIMENSION_VALUES_MAX,
    BOT_DIMENSIONS_MAX,
    CHECKPOINT_MAX,
    COMMENT_MAX,
    EXIT_CODE_MAX,
    EXIT_CODE_MIN,
    LABELS_MAX,
    NUMBER_MAX,
    OUTPUTS_MAX,
    PIECE_MAX,
    POLL_WORDS_MAX,
    PROGRESS_MAX,
    REASONS_OF_BOTS,
    RESULT_MAX,
    RESULTS_MAX,
    SLOTS_MAX,
    WHY_MAX,
    WISHED_MAX,
)
from taskyard.engine.glance import is_plain
from taskyard.lifecycle.commands import (
    Approve,
    Cancel,
    Goodbye,
    Hello,
    Output,
    Poll,
    Publish,
    Renewal,
    Report,
    Rerun,
    Stats,
)
from taskyard.lifecycle.outcomes import Code, Refusal
from taskyard.lifecycle.own_attempts import SERVER

_Table: TypeAlias = Mapping[str, Reader]


def poll(command: Poll) -> Refusal | None:
    """Say what is wrong with a poll. Bots poll all the time, so a good one is only glanced at."""
    return None if is_plain(command) else _refusal(Poll, command)


def hello(command: Hello) -> Refusal | None:
    """Say what is wrong with a hello."""
    return _refusal(Hello, command, _own_dimensions)


def goodbye(command: Goodbye) -> Refusal | None:
    """Say what is wrong with a goodbye."""
    return _refusal(Goodbye, command)


def cancel(command: Cancel) -> Refusal | None:
    """Say what is wrong with a cancel."""
    return _refusal(Cancel, command, _subject)


def rerun(command: Rerun) -> Refusal | None:
    """Say what is wrong with a rerun."""
    return _refusal(Rerun, command, _subject)


def publish(command: Publish) -> Refusal | None:
    """Say what is wrong with what a task publishes."""
    return _refusal(Publish, command)


def submission(graph_id: str | None, key: str, actor: str) -> Refusal | None:
    """Say what is wrong with what comes beside a new graph."""
    chosen = {} if graph_id is None else {"graph_id": graph_id}
    return request(**chosen, key=key, actor=actor)


def request(**said: object) -> Refusal | None:
    """Say what is wrong with what somebody asks for without a command, by the names in `BESIDE` and `LIMITS`."""
    faults = Faults()
    for name, value in said.items():
        _SAID[name].read(value, (name,), faults)
    return _told("request", faults)


# Readers of single values. A command is made in Python, so types have to be right to the letter: a subclass may do
# anything, and `True` is no number.


def _exactly(kind: type, takes: str, fits: Callable[[Any], bool] = lambda _: True) -> Reader:
    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not kind or not fits(value):
            faults.add(at, f"must be {takes}; got {_shown(value)}")

    return Reader(takes, read)


def _number(low: int, high: int) -> Reader:
    return _exactly(int, f"an integer from {low} to {high}", lambda value: low <= value <= high)


def _one_of(kind: type[Word], allowed: frozenset[Any]) -> Reader:
    named = ", ".join(f"{kind.__name__}.{one.name}" for one in kind if one in allowed)
    return _exactly(kind, f"one of {named}", lambda value: value in allowed)


def _name(longest: int = NAME_MAX, *, empty: bool = False) -> Reader:
    takes = f"a string of {0 if empty else 1} to {longest} characters, none hidden"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not str:
            faults.add(at, f"must be {takes}; got {_shown(value)}")
        elif (value or not empty) and (fault := name_fault(value, longest)):
            faults.add(at, fault)

    return Reader(takes, read)


def _several(one: Reader, least: int, most: int) -> Reader:
    takes = f"a tuple of {least} to {most}, each {one.takes}"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not tuple or not least <= len(value) <= most:
            faults.add(at, f"must be {takes}; got {_shown(value)}")
            return
        for place, each in enumerate(value):
            one.read(each, (*at, place), faults)

    return Reader(takes, read)


def _text(longest: int, *, empty: bool = False) -> Reader:
    shortest = 0 if empty else 1
    takes = f"a string of {shortest} to {longest} characters, without NUL"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not str:
            faults.add(at, f"must be {takes}; got {_shown(value)}")
        elif not shortest <= len(value) <= longest:
            faults.add(at, f"must be {takes}; got {len(value)}")
        elif "\0" in value:
            faults.add(at, "holds a NUL character; remove it")
        elif not _can_be_written(value):
            faults.add(at, "holds a lone surrogate, which is not a character; remove it")

    return Reader(takes, read)


def _or_none(reader: Reader) -> Reader:
    def read(value: object, at: Path, faults: Faults) -> None:
        if value is not None:
            reader.read(value, at, faults)

    return Reader(f"{reader.takes}; or None", read)


def _id() -> Reader:
    takes = f"an id, {ids.KEY_DIGITS} hexadecimal digits"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not str:
            faults.add(at, f"must be {takes}; got {_shown(value)}")
            return
        try:
            ids.key_of(value)
        except ValueError as fault:
            faults.add(at, str(fault))

    return Reader(takes, read)


def _tuple_of(kind: type, table: _Table, most: int) -> Reader:
    takes = f"a tuple of at most {most}, each a {kind.__name__}"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not tuple:
            faults.add(at, f"must be {takes}; got {_shown(value)}")
        elif len(value) > most:
            faults.add(at, f"must hold at most {most}; got {len(value)}")
        else:
            for place, one in enumerate(value):
                _read(kind, table, one, (*at, place), faults)

    return Reader(takes, read)


def _results(reports: Reader) -> Reader:
    """Read reports whose results are not too much together."""

    def read(value: Any, at: Path, faults: Faults) -> None:
        before = faults.noted
        reports.read(value, at, faults)
        if faults.noted == before:
            size = sum(len(one.result or "") for one in value)
            if size > RESULTS_MAX:
                faults.add(at, f"have results of {size} characters; at most {RESULTS_MAX} in one poll")

    return Reader(reports.takes, read)


def _bodies(outputs: Reader) -> Reader:
    """Read pieces of output that are not too much together."""

    def read(value: Any, at: Path, faults: Faults) -> None:
        before = faults.noted
        outputs.read(value, at, faults)
        if faults.noted == before and (size := sum(len(one.body) for one in value)) > OUTPUTS_MAX:
            faults.add(at, f"have {size} bytes together; at most {OUTPUTS_MAX} in one poll")

    return Reader(outputs.takes, read)


def _bytes(most: int) -> Reader:
    return _exactly(bytes, f"at most {most} bytes", lambda value: len(value) <= most)


def _one(kind: type, table: _Table) -> Reader:
    def read(value: object, at: Path, faults: Faults) -> None:
        _read(kind, table, value, at, faults)

    return Reader(f"a {kind.__name__}", read)


def _dimensions() -> Reader:
    takes = "dimensions in canonical form, with the bot's own id and a pool"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not tuple or not all(map(_is_dimension, value)):
            faults.add(at, f"must be {takes}; got {_shown(value)}")
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


# What every field takes.

_KEY_OF_TASK: Final = _number(0, NUMBER_MAX)
_ATTEMPT: Final[_Table] = {"task": _KEY_OF_TASK, "attempt": _number(1, NUMBER_MAX), "fence": _number(0, NUMBER_MAX)}
_AMOUNT: Final = _or_none(_number(0, NUMBER_MAX))
_STATS: Final[_Table] = {
    "prepared_ms": _AMOUNT,
    "ran_ms": _AMOUNT,
    "uploaded_ms": _AMOUNT,
    "cpu_s": _or_none(_exactly(float, "a number of seconds", lambda value: 0 <= value <= NUMBER_MAX)),
    "memory_bytes": _AMOUNT,
    "read_bytes": _AMOUNT,
    "written_bytes": _AMOUNT,
    "truncated": _exactly(bool, "True or False"),
}
_REPORT: Final[_Table] = {
    **_ATTEMPT,
    "signal": _one_of(Signal, WORDS_ON_AN_ATTEMPT),
    "reason": _or_none(_one_of(Reason, REASONS_OF_BOTS)),
    "exit_code": _or_none(_number(EXIT_CODE_MIN, EXIT_CODE_MAX)),
    "result": _or_none(_text(RESULT_MAX)),
    "stats": _or_none(_one(Stats, _STATS)),
}
_RENEWAL: Final[_Table] = {
    **_ATTEMPT,
    "progress": _or_none(_text(PROGRESS_MAX)),
    "checkpoint": _or_none(_bytes(CHECKPOINT_MAX)),
}
_OUTPUT: Final[_Table] = {**_ATTEMPT, "start": _number(0, NUMBER_MAX), "body": _bytes(PIECE_MAX)}
_BOT: Final[_Table] = {"bot": _name(), "session": _name()}
_WISH: Final[_Table] = {"task": _or_none(_KEY_OF_TASK), "graph": _or_none(_KEY_OF_TASK)}
_WISHED: Final = _several(_KEY_OF_TASK, 0, WISHED_MAX)
#: What comes beside a document, or beside anything that a person asks for.
BESIDE: Final[_Table] = {
    "graph_id": _id(),
    "task_id": _id(),
    "key": _name(empty=True),
    "actor": _name(empty=True),
    "labels": _several(_name(), 1, LABELS_MAX),
}
#: What a person says of a limit.
LIMITS: Final[_Table] = {
    "name": _name(),
    "capacity": _or_none(_number(0, NUMBER_MAX)),
    "from_bots": _exactly(bool, "True or False"),
    "total": _number(0, NUMBER_MAX),
    "greedy": _exactly(bool, "True or False"),
}
_PERSON: Final[_Table] = {"actor": BESIDE["actor"], "key": BESIDE["key"]}
_SAID: Final[_Table] = {**BESIDE, **LIMITS}
#: The fields of every command, for whoever wants to print them.
FIELDS: Final[Mapping[type, _Table]] = {
    Hello: {
        **_BOT,
        "dimensions": _dimensions(),
        "slots": _number(1, SLOTS_MAX),
        "quarantined": _or_none(_text(WHY_MAX)),
        "maintenance": _or_none(_text(WHY_MAX)),
        "draining": _exactly(bool, "True or False"),
    },
    Poll: {
        **_BOT,
        "poll": _name(empty=True),
        "reports": _results(_tuple_of(Report, _REPORT, POLL_WORDS_MAX)),
        "renewals": _tuple_of(Renewal, _RENEWAL, POLL_WORDS_MAX),
        "want": _number(0, NUMBER_MAX),
        "outputs": _bodies(_tuple_of(Output, _OUTPUT, POLL_WORDS_MAX)),
        "waits": _exactly(bool, "True or False"),
        "briefed": _exactly(bool, "True or False"),
    },
    Report: _REPORT,
    Stats: _STATS,
    Renewal: _RENEWAL,
    Output: _OUTPUT,
    Goodbye: _BOT,
    Publish: {**_RENEWAL, "result": _or_none(_text(RESULT_MAX))},
    Cancel: {
        **_WISH,
        "subtree": _exactly(bool, "True or False"),
        **_PERSON,
        "tasks": _several(_KEY_OF_TASK, 0, WISHED_MAX),
    },
    Rerun: {**_WISH, **_PERSON},
    Approve: {
        "task": _KEY_OF_TASK,
        "approved": _exactly(bool, "True or False"),
        "comment": _text(COMMENT_MAX, empty=True),
        **_PERSON,
    },
}
#: Who looks at which command.
CHECKS: Final[Mapping[type, Callable[[Any], Refusal | None]]] = {
    Poll: poll,
    Hello: hello,
    Goodbye: goodbye,
    Cancel: cancel,
    Rerun: rerun,
    Approve: lambda command: _refusal(Approve, command),
    Publish: publish,
}


def _refusal(kind: type, command: object, beyond: Callable[[Any, Faults], None] | None = None) -> Refusal | None:
    """Read every field of a command, and what they have to be together."""
    faults = Faults()
    _read(kind, FIELDS[kind], command, (), faults)
    if beyond is not None and type(command) is kind:
        beyond(command, faults)
    return _told(kind.__name__.lower(), faults)


def _read(kind: type, table: _Table, value: object, at: Path, faults: Faults) -> None:
    if type(value) is not kind:
        faults.add(at, f"must be a {kind.__name__}; got {_shown(value)}")
        return
    for name, reader in table.items():
        reader.read(getattr(value, name), (*at, name), faults)


def _told(what: str, faults: Faults) -> Refusal | None:
    if not faults.noted:
        return None
    listed = faults.listed()
    return Refusal(Code.INVALID, f"the {what} has {len(listed)} fault{'s' * (len(listed) > 1)}", listed)


def _subject(command: Cancel | Rerun, faults: Faults) -> None:
    if command.task is None and command.graph is None:
        faults.add(("task",), "names nothing, and neither does graph: name a task or a graph")


def _own_dimensions(command: Hello, faults: Faults) -> None:
    """A bot that had another's id would be given what is pinned to that one."""
    if faults.noted:
        return
    had = dict(command.dimensions)
    if had.get(ID) != (command.bot,):
        faults.add(("dimensions", ID), f"must be the name of the bot, {quoted(command.bot)}, and nothing else")
    if command.bot == SERVER.bot:
        faults.add(("bot",), "is what the server calls itself; take another name")
    if POOL not in had:
        faults.add(("dimensions",), f"needs the key {quoted(POOL)}")


def _shown(value: object) -> str:
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
