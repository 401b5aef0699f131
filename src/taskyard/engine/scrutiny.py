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
from taskyard.core.graph.limits import DESCRIPTION_MAX, DIMENSION_KEY_MAX, DIMENSION_VALUE_MAX, NAME_MAX
from taskyard.core.graph.readers import name_fault
from taskyard.core.matching import ID, OR, POOL, canonical
from taskyard.core.words import Reason, Signal, Word
from taskyard.lifecycle.commands import Cancel, Goodbye, Hello, Poll, Renewal, Report, Rerun
from taskyard.lifecycle.outcomes import Code, Refusal

#: The largest number that both databases keep.
NUMBER_MAX: Final = 2**63 - 1
#: What any system says about the end of a process: a signal as a negative number, or 32 bits without a sign.
EXIT_CODE_MIN: Final = -(2**31)
EXIT_CODE_MAX: Final = 2**32 - 1
#: What one poll may report, and what it may renew: a transaction takes twice that many tasks. A bot with more to say
#: polls again.
POLL_WORDS_MAX: Final = 1_000
#: What an attempt publishes, in characters: facts for whoever comes after it. More belongs in an output.
RESULT_MAX: Final = 65_536
#: All results of one poll together: written in well under 100 ms.
RESULTS_MAX: Final = 4_194_304
#: A pool may count its capacity from the slots of its bots, and weights go up to this.
SLOTS_MAX: Final = 1_000_000
#: Why a bot is unfit or away; a traceback fits.
WHY_MAX: Final = DESCRIPTION_MAX
#: What a bot may have: more keys and values than a slice may ask for, since it serves many kinds of them.
BOT_DIMENSIONS_MAX: Final = 128
BOT_DIMENSION_VALUES_MAX: Final = 128

#: Why a bot may say that an attempt ended badly; all other reasons are for the server to give.
REASONS_OF_BOTS: Final = frozenset({Reason.EXIT_CODE, Reason.SIGNALED, Reason.TIMED_OUT, Reason.SILENT})

_Table: TypeAlias = Mapping[str, Reader]


def poll(command: Poll) -> Refusal | None:
    """Say what is wrong with a poll. Bots poll all the time, so a good one is only glanced at."""
    return None if _is_plain(command) else _refusal(Poll, command)


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


def _text(longest: int) -> Reader:
    takes = f"a string of 1 to {longest} characters, without NUL"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not str:
            faults.add(at, f"must be {takes}; got {_shown(value)}")
        elif not 1 <= len(value) <= longest:
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
_REPORT: Final[_Table] = {
    **_ATTEMPT,
    "signal": _one_of(Signal, WORDS_ON_AN_ATTEMPT),
    "reason": _or_none(_one_of(Reason, REASONS_OF_BOTS)),
    "exit_code": _or_none(_number(EXIT_CODE_MIN, EXIT_CODE_MAX)),
    "result": _or_none(_text(RESULT_MAX)),
}
_BOT: Final[_Table] = {"bot": _name(), "session": _name()}
_WISH: Final[_Table] = {"task": _or_none(_KEY_OF_TASK), "graph": _or_none(_KEY_OF_TASK)}
#: What comes beside a document, or beside anything that a person asks for.
BESIDE: Final[_Table] = {
    "graph_id": _id(),
    "task_id": _id(),
    "key": _name(empty=True),
    "actor": _name(empty=True),
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
        "renewals": _tuple_of(Renewal, _ATTEMPT, POLL_WORDS_MAX),
        "want": _number(0, NUMBER_MAX),
    },
    Report: _REPORT,
    Renewal: _ATTEMPT,
    Goodbye: _BOT,
    Cancel: {**_WISH, "subtree": _exactly(bool, "True or False"), **_PERSON},
    Rerun: {**_WISH, **_PERSON},
}
#: Who looks at which command.
CHECKS: Final[Mapping[type, Callable[[Any], Refusal | None]]] = {
    Poll: poll,
    Hello: hello,
    Goodbye: goodbye,
    Cancel: cancel,
    Rerun: rerun,
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


# The glance: true only of what the tables above find no fault with, and of nearly every poll there is.


def _is_plain(one: Poll) -> bool:
    return (
        type(one) is Poll
        and _is_plain_name(one.bot)
        and _is_plain_name(one.session)
        and (_is_plain_name(one.poll) or one.poll == "")
        and type(one.want) is int
        and 0 <= one.want <= NUMBER_MAX
        and type(one.reports) is tuple
        and type(one.renewals) is tuple
        and len(one.reports) <= POLL_WORDS_MAX
        and len(one.renewals) <= POLL_WORDS_MAX
        and _are_plain_reports(one.reports)
        and all(map(_is_plain_renewal, one.renewals))
    )


def _is_plain_name(name: object) -> bool:
    return (
        type(name) is str
        and 0 < len(name) <= NAME_MAX
        and name.isascii()
        and name.isprintable()
        and name[0] != " "
        and name[-1] != " "
    )


def _are_plain_reports(reports: tuple[Report, ...]) -> bool:
    return all(map(_is_plain_report, reports)) and (
        len(reports) * RESULT_MAX <= RESULTS_MAX or sum(len(one.result or "") for one in reports) <= RESULTS_MAX
    )


def _is_plain_report(one: Report) -> bool:
    return (
        type(one) is Report
        and _is_plain_lease(one.task, one.attempt, one.fence)
        and (one.signal is Signal.SUCCEED or one.signal is Signal.FAIL)
        and (one.reason is None or (type(one.reason) is Reason and one.reason in REASONS_OF_BOTS))
        and (one.exit_code is None or (type(one.exit_code) is int and EXIT_CODE_MIN <= one.exit_code <= EXIT_CODE_MAX))
        and (one.result is None or _is_plain_text(one.result))
    )


def _is_plain_renewal(one: Renewal) -> bool:
    return type(one) is Renewal and _is_plain_lease(one.task, one.attempt, one.fence)


def _is_plain_lease(task: object, attempt: object, fence: object) -> bool:
    return (
        type(task) is int
        and type(attempt) is int
        and type(fence) is int
        and 0 <= task <= NUMBER_MAX
        and 1 <= attempt <= NUMBER_MAX
        and 0 <= fence <= NUMBER_MAX
    )


def _is_plain_text(text: object) -> bool:
    return type(text) is str and 1 <= len(text) <= RESULT_MAX and text.isascii() and "\0" not in text
