"""The look at the door: whether what somebody asks for can be asked at all, before the writer hears of it.

Every fault of a command is listed at once, with its path and what the field takes. Whatever passes can be stored by
both databases, so nothing that a caller writes becomes an exception later. Here nothing is looked up: whether a task,
a bot or a lease is there is for the rooms to say.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from taskyard.core import ids
from taskyard.core.admission.rules import STAKE_AFTER_MAX_MS
from taskyard.core.attempt_policy import ATTEMPT_SIGNALS
from taskyard.core.graph.errors import Faults, Path, quoted, shown
from taskyard.core.graph.model import DESCRIPTION_MAX, DIMENSION_KEY_MAX, DIMENSION_VALUE_MAX, NAME_MAX
from taskyard.core.graph.scalars import KEY, Reader, name_fault
from taskyard.core.matching import ID, OR, POOL, canonical
from taskyard.core.states import Reason, Signal, Word
from taskyard.lifecycle.commands import (
    Approve,
    Begun,
    Cancel,
    Code,
    Goodbye,
    Hello,
    Output,
    Poll,
    Publish,
    Refusal,
    Renewal,
    Report,
    Rerun,
    Stats,
)
from taskyard.lifecycle.server_attempts import SERVER

# How large what is said to the engine may be. `docs/commands.md` prints these beside the fields they bound.


#: The largest number that both databases keep.
NUMBER_MAX: Final = 2**63 - 1
#: What any system says about the end of a process: a signal as a negative number, or 32 bits without a sign.
EXIT_CODE_MIN: Final = -(2**31)
EXIT_CODE_MAX: Final = 2**32 - 1
#: What one poll may report, and what it may renew: a transaction takes twice that many tasks. A bot with more to say
#: polls again.
POLL_WORDS_MAX: Final = 1_000
#: What an attempt publishes, in characters: facts for whoever comes after it. More belongs in an output.
RESULT_MAX: Final = 262_144
#: All results of one poll together: written in well under 100 ms.
RESULTS_MAX: Final = 4_194_304
#: What one poll may bring of what attempts print, and how large one piece may be, in bytes: written in a few
#: milliseconds.
OUTPUTS_MAX: Final = 1_048_576
PIECE_MAX: Final = 262_144
#: What an attempt says of its progress, in characters, and what it leaves for the next, in bytes.
PROGRESS_MAX: Final = 4_096
CHECKPOINT_MAX: Final = 65_536
#: What a person says of a decision, in characters.
COMMENT_MAX: Final = 4_096
#: From how many tasks on a graph may be run again or ended by one wish; a matrix counts as one.
LABELS_MAX: Final = 100
#: How many tasks a wish names that ends them with everything behind them: what one transaction looks at in no time.
WISHED_MAX: Final = 1_000
#: A pool may count its capacity from the slots of its bots, and weights go up to this.
SLOTS_MAX: Final = 1_000_000
#: Why a bot is unfit or away; a traceback fits.
WHY_MAX: Final = DESCRIPTION_MAX
#: What a bot may have: more keys and values than a slice may ask for, since it serves many kinds of them.
BOT_DIMENSIONS_MAX: Final = 128
BOT_DIMENSION_VALUES_MAX: Final = 128

#: Why a bot may say that an attempt ended badly; all other reasons are for the server to give.
REASONS_OF_BOTS: Final = frozenset(
    {
        Reason.EXIT_CODE,
        Reason.SIGNALED,
        Reason.TIMED_OUT,
        Reason.SILENT,
        Reason.BAD_RESULT,
        Reason.UNRENEWED,
        Reason.RETURNED,
    }
)


# Readers of single values in what somebody says to the engine: each says what it takes, and what is wrong instead.
#
# A command is made in Python, so types have to be right to the letter: a subclass may do anything, and `True` is no
# number. Nothing here knows a command.


def exactly(kind: type, takes: str, fits: Callable[[Any], bool] = lambda _: True) -> Reader:
    """Take a value of one type, and of no other."""

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not kind or not fits(value):
            faults.add(at, f"must be {takes}; got {named(value)}")

    return Reader(takes, read)


def number(low: int, high: int) -> Reader:
    """Take a whole number."""
    return exactly(int, f"an integer from {low} to {high}", lambda value: low <= value <= high)


def one_of(kind: type[Word], allowed: frozenset[Any]) -> Reader:
    """Take one of some words."""
    listed = ", ".join(f"{kind.__name__}.{one.name}" for one in kind if one in allowed)
    return exactly(kind, f"one of {listed}", lambda value: value in allowed)


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
        if type(value) is not tuple or not least <= len(value) <= most:
            faults.add(at, f"must be {takes}; got {named(value)}")
            return
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


def some_bytes(most: int) -> Reader:
    """Take bytes."""
    return exactly(bytes, f"at most {most} bytes", lambda value: len(value) <= most)


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


# A glance at a poll: true only of what scrutiny finds no fault with, and of nearly every poll there is.
#
# Bots poll all the time, and to read every field by its table takes longer than to carry the poll out.


def is_plain(one: Poll) -> bool:
    """Tell at a glance that nothing is wrong with a poll."""
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
        and _is_bool(one.waits)
        and _is_bool(one.briefed)
        and (one.pool is None or _is_plain_name(one.pool))
        and type(one.outputs) is tuple
        and (not one.outputs or _are_plain_outputs(one.outputs))
        and (one.begun is None or _are_plain_begun(one.begun))
    )


def _is_bool(one: object) -> bool:
    return type(one) is bool


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
        and (one.result is None or _is_plain_text(one.result, RESULT_MAX))
        and (one.stats is None or _are_plain_stats(one.stats))
    )


def _are_plain_stats(one: Stats) -> bool:
    return (
        type(one) is Stats
        and _is_plain_number(one.prepared_ms)
        and _is_plain_number(one.ran_ms)
        and _is_plain_number(one.uploaded_ms)
        and (one.cpu_s is None or (type(one.cpu_s) is float and 0 <= one.cpu_s <= NUMBER_MAX))
        and _is_plain_number(one.memory_bytes)
        and _is_plain_number(one.read_bytes)
        and _is_plain_number(one.written_bytes)
        and type(one.truncated) is bool
    )


def _is_plain_number(one: object) -> bool:
    return one is None or (type(one) is int and 0 <= one <= NUMBER_MAX)


def _are_plain_outputs(outputs: tuple[Output, ...]) -> bool:
    return (
        len(outputs) <= POLL_WORDS_MAX
        and all(map(_is_plain_output, outputs))
        and sum(len(one.body) for one in outputs) <= OUTPUTS_MAX
    )


def _are_plain_begun(begun: tuple[Begun, ...]) -> bool:
    return (
        type(begun) is tuple
        and len(begun) <= POLL_WORDS_MAX
        and all(type(one) is Begun and _is_plain_lease(one.task, one.attempt, one.fence) for one in begun)
    )


def _is_plain_output(one: Output) -> bool:
    return (
        type(one) is Output
        and _is_plain_lease(one.task, one.attempt, one.fence)
        and type(one.start) is int
        and 0 <= one.start <= NUMBER_MAX
        and type(one.body) is bytes
        and len(one.body) <= PIECE_MAX
    )


def _is_plain_renewal(one: Renewal) -> bool:
    return (
        type(one) is Renewal
        and _is_plain_lease(one.task, one.attempt, one.fence)
        and (one.progress is None or _is_plain_text(one.progress, PROGRESS_MAX))
        and (one.checkpoint is None or (type(one.checkpoint) is bytes and len(one.checkpoint) <= CHECKPOINT_MAX))
    )


def _is_plain_lease(task: object, attempt: object, fence: object) -> bool:
    return (
        type(task) is int
        and type(attempt) is int
        and type(fence) is int
        and 0 <= task <= NUMBER_MAX
        and 1 <= attempt <= NUMBER_MAX
        and 0 <= fence <= NUMBER_MAX
    )


def _is_plain_text(text: object, longest: int) -> bool:
    return type(text) is str and 1 <= len(text) <= longest and text.isascii() and "\0" not in text


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


def submission(graph_id: str | None, key: str, actor: str, submitter: str) -> Refusal | None:
    """Say what is wrong with what comes beside a new graph."""
    chosen = {} if graph_id is None else {"graph_id": graph_id}
    return request(**chosen, key=key, actor=actor, submitter=submitter)


def request(**said: object) -> Refusal | None:
    """Say what is wrong with what somebody asks for without a command, by the names in `BESIDE` and `LIMITS`."""
    faults = Faults()
    for name, value in said.items():
        _SAID[name].read(value, (name,), faults)
    return _told("request", faults)


# Readers of what a command holds; those of single values are in `readers`.


def _tuple_of(kind: type, table: _Table, most: int) -> Reader:
    takes = f"a tuple of at most {most}, each a {kind.__name__}"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not tuple:
            faults.add(at, f"must be {takes}; got {named(value)}")
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


def _one(kind: type, table: _Table) -> Reader:
    def read(value: object, at: Path, faults: Faults) -> None:
        _read(kind, table, value, at, faults)

    return Reader(f"a {kind.__name__}", read)


# What every field takes.

_KEY_OF_TASK: Final = number(0, NUMBER_MAX)
_ATTEMPT: Final[_Table] = {
    "task": _KEY_OF_TASK,
    "attempt": number(1, NUMBER_MAX),
    "fence": number(0, NUMBER_MAX),
}
_AMOUNT: Final = or_none(number(0, NUMBER_MAX))
_STATS: Final[_Table] = {
    "prepared_ms": _AMOUNT,
    "ran_ms": _AMOUNT,
    "uploaded_ms": _AMOUNT,
    "cpu_s": or_none(exactly(float, "a number of seconds", lambda value: 0 <= value <= NUMBER_MAX)),
    "memory_bytes": _AMOUNT,
    "read_bytes": _AMOUNT,
    "written_bytes": _AMOUNT,
    "truncated": exactly(bool, "True or False"),
}
_REPORT: Final[_Table] = {
    **_ATTEMPT,
    "signal": one_of(Signal, ATTEMPT_SIGNALS),
    "reason": or_none(one_of(Reason, REASONS_OF_BOTS)),
    "exit_code": or_none(number(EXIT_CODE_MIN, EXIT_CODE_MAX)),
    "result": or_none(text(RESULT_MAX)),
    "stats": or_none(_one(Stats, _STATS)),
}
_RENEWAL: Final[_Table] = {
    **_ATTEMPT,
    "progress": or_none(text(PROGRESS_MAX)),
    "checkpoint": or_none(some_bytes(CHECKPOINT_MAX)),
}
_BEGUN: Final = or_none(_tuple_of(Begun, _ATTEMPT, POLL_WORDS_MAX))
_OUTPUT: Final[_Table] = {**_ATTEMPT, "start": number(0, NUMBER_MAX), "body": some_bytes(PIECE_MAX)}
_BOT: Final[_Table] = {"bot": name(), "session": name()}
_WISH: Final[_Table] = {"task": or_none(_KEY_OF_TASK), "graph": or_none(_KEY_OF_TASK)}
_WISHED: Final = several(_KEY_OF_TASK, 0, WISHED_MAX)
#: What comes beside a document, or beside anything that a person asks for.
BESIDE: Final[_Table] = {
    "graph_id": key(),
    "task_id": key(),
    "key": name(empty=True),
    "actor": name(empty=True),
    "submitter": name(empty=True),
    "labels": several(name(), 1, LABELS_MAX),
}
#: What a person says of a limit.
LIMITS: Final[_Table] = {
    "name": name(),
    "capacity": or_none(number(0, NUMBER_MAX)),
    "from_bots": exactly(bool, "True or False"),
    "total": number(0, NUMBER_MAX),
    "stake_after_ms": or_none(number(0, STAKE_AFTER_MAX_MS)),
}
_PERSON: Final[_Table] = {"actor": BESIDE["actor"], "key": BESIDE["key"]}
_SAID: Final[_Table] = {**BESIDE, **LIMITS}
#: The fields of every command, for whoever wants to print them.
FIELDS: Final[Mapping[type, _Table]] = {
    Hello: {
        **_BOT,
        "dimensions": dimensions(),
        "slots": number(1, SLOTS_MAX),
        "quarantined": or_none(text(WHY_MAX)),
        "maintenance": or_none(text(WHY_MAX)),
        "draining": exactly(bool, "True or False"),
        "begun": _BEGUN,
    },
    Poll: {
        **_BOT,
        "poll": name(empty=True),
        "reports": _results(_tuple_of(Report, _REPORT, POLL_WORDS_MAX)),
        "renewals": _tuple_of(Renewal, _RENEWAL, POLL_WORDS_MAX),
        "want": number(0, NUMBER_MAX),
        "outputs": _bodies(_tuple_of(Output, _OUTPUT, POLL_WORDS_MAX)),
        "waits": exactly(bool, "True or False"),
        "briefed": exactly(bool, "True or False"),
        "pool": or_none(name()),
        "begun": _BEGUN,
    },
    Report: _REPORT,
    Stats: _STATS,
    Renewal: _RENEWAL,
    Output: _OUTPUT,
    Begun: _ATTEMPT,
    Goodbye: {**_BOT, "pool": or_none(name())},
    Publish: {**_RENEWAL, "result": or_none(text(RESULT_MAX))},
    Cancel: {
        **_WISH,
        "subtree": exactly(bool, "True or False"),
        **_PERSON,
        "tasks": several(_KEY_OF_TASK, 0, WISHED_MAX),
    },
    Rerun: {**_WISH, **_PERSON},
    Approve: {
        "task": _KEY_OF_TASK,
        "approved": exactly(bool, "True or False"),
        "comment": text(COMMENT_MAX, empty=True),
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
        faults.add(at, f"must be a {kind.__name__}; got {named(value)}")
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
