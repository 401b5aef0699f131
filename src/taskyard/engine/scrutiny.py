"""The look at the door: whether what somebody asks for can be asked at all, before the writer hears of it.

Every fault of a command is listed at once, with its path and what the field takes. Whatever passes can be stored by
both databases, so nothing that a caller writes becomes an exception later. Here nothing is looked up: whether a task,
a bot or a lease is there is for the rooms to say.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from taskyard.core.budget import WORDS_ON_AN_ATTEMPT
from taskyard.core.graph.faults import Faults, Path, quoted
from taskyard.core.graph.fields import Reader
from taskyard.core.matching import ID, POOL
from taskyard.core.partials import STAKE_AFTER_MAX_MS
from taskyard.core.words import Reason, Signal
from taskyard.engine import readers
from taskyard.engine.bounds import (
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
            faults.add(at, f"must be {takes}; got {readers.named(value)}")
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

_KEY_OF_TASK: Final = readers.number(0, NUMBER_MAX)
_ATTEMPT: Final[_Table] = {
    "task": _KEY_OF_TASK,
    "attempt": readers.number(1, NUMBER_MAX),
    "fence": readers.number(0, NUMBER_MAX),
}
_AMOUNT: Final = readers.or_none(readers.number(0, NUMBER_MAX))
_STATS: Final[_Table] = {
    "prepared_ms": _AMOUNT,
    "ran_ms": _AMOUNT,
    "uploaded_ms": _AMOUNT,
    "cpu_s": readers.or_none(readers.exactly(float, "a number of seconds", lambda value: 0 <= value <= NUMBER_MAX)),
    "memory_bytes": _AMOUNT,
    "read_bytes": _AMOUNT,
    "written_bytes": _AMOUNT,
    "truncated": readers.exactly(bool, "True or False"),
}
_REPORT: Final[_Table] = {
    **_ATTEMPT,
    "signal": readers.one_of(Signal, WORDS_ON_AN_ATTEMPT),
    "reason": readers.or_none(readers.one_of(Reason, REASONS_OF_BOTS)),
    "exit_code": readers.or_none(readers.number(EXIT_CODE_MIN, EXIT_CODE_MAX)),
    "result": readers.or_none(readers.text(RESULT_MAX)),
    "stats": readers.or_none(_one(Stats, _STATS)),
}
_RENEWAL: Final[_Table] = {
    **_ATTEMPT,
    "progress": readers.or_none(readers.text(PROGRESS_MAX)),
    "checkpoint": readers.or_none(readers.some_bytes(CHECKPOINT_MAX)),
}
_BEGUN: Final = readers.or_none(_tuple_of(Begun, _ATTEMPT, POLL_WORDS_MAX))
_OUTPUT: Final[_Table] = {**_ATTEMPT, "start": readers.number(0, NUMBER_MAX), "body": readers.some_bytes(PIECE_MAX)}
_BOT: Final[_Table] = {"bot": readers.name(), "session": readers.name()}
_WISH: Final[_Table] = {"task": readers.or_none(_KEY_OF_TASK), "graph": readers.or_none(_KEY_OF_TASK)}
_WISHED: Final = readers.several(_KEY_OF_TASK, 0, WISHED_MAX)
#: What comes beside a document, or beside anything that a person asks for.
BESIDE: Final[_Table] = {
    "graph_id": readers.key(),
    "task_id": readers.key(),
    "key": readers.name(empty=True),
    "actor": readers.name(empty=True),
    "submitter": readers.name(empty=True),
    "labels": readers.several(readers.name(), 1, LABELS_MAX),
}
#: What a person says of a limit.
LIMITS: Final[_Table] = {
    "name": readers.name(),
    "capacity": readers.or_none(readers.number(0, NUMBER_MAX)),
    "from_bots": readers.exactly(bool, "True or False"),
    "total": readers.number(0, NUMBER_MAX),
    "stake_after_ms": readers.or_none(readers.number(0, STAKE_AFTER_MAX_MS)),
}
_PERSON: Final[_Table] = {"actor": BESIDE["actor"], "key": BESIDE["key"]}
_SAID: Final[_Table] = {**BESIDE, **LIMITS}
#: The fields of every command, for whoever wants to print them.
FIELDS: Final[Mapping[type, _Table]] = {
    Hello: {
        **_BOT,
        "dimensions": readers.dimensions(),
        "slots": readers.number(1, SLOTS_MAX),
        "quarantined": readers.or_none(readers.text(WHY_MAX)),
        "maintenance": readers.or_none(readers.text(WHY_MAX)),
        "draining": readers.exactly(bool, "True or False"),
        "begun": _BEGUN,
    },
    Poll: {
        **_BOT,
        "poll": readers.name(empty=True),
        "reports": _results(_tuple_of(Report, _REPORT, POLL_WORDS_MAX)),
        "renewals": _tuple_of(Renewal, _RENEWAL, POLL_WORDS_MAX),
        "want": readers.number(0, NUMBER_MAX),
        "outputs": _bodies(_tuple_of(Output, _OUTPUT, POLL_WORDS_MAX)),
        "waits": readers.exactly(bool, "True or False"),
        "briefed": readers.exactly(bool, "True or False"),
        "pool": readers.or_none(readers.name()),
        "begun": _BEGUN,
    },
    Report: _REPORT,
    Stats: _STATS,
    Renewal: _RENEWAL,
    Output: _OUTPUT,
    Begun: _ATTEMPT,
    Goodbye: {**_BOT, "pool": readers.or_none(readers.name())},
    Publish: {**_RENEWAL, "result": readers.or_none(readers.text(RESULT_MAX))},
    Cancel: {
        **_WISH,
        "subtree": readers.exactly(bool, "True or False"),
        **_PERSON,
        "tasks": readers.several(_KEY_OF_TASK, 0, WISHED_MAX),
    },
    Rerun: {**_WISH, **_PERSON},
    Approve: {
        "task": _KEY_OF_TASK,
        "approved": readers.exactly(bool, "True or False"),
        "comment": readers.text(COMMENT_MAX, empty=True),
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
        faults.add(at, f"must be a {kind.__name__}; got {readers.named(value)}")
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
