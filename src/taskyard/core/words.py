"""The words of Taskyard, one per concept.

These enums are the vocabulary that the store, the wire, the events and the people share; `docs/glossary.md`
explains each of them. A word's value is its spelling everywhere outside Python. Nothing here decides anything.
"""

from enum import StrEnum, unique
from typing import NewType

#: A moment: milliseconds since 1970-01-01T00:00:00Z.
Millis = NewType("Millis", int)
GraphId = NewType("GraphId", str)
TaskId = NewType("TaskId", str)
BotId = NewType("BotId", str)


class Word(StrEnum):
    """One word of the vocabulary."""

    text: str  # the word as plain text, which is faster to get at than its value

    def __init__(self, text: str) -> None:
        self.text = str(text)


@unique
class State(Word):
    """Where a task is in its life."""

    UNSCHEDULED = "unscheduled"  # prerequisites are unmet
    BLOCKED = "blocked"  # a prerequisite failed; a rerun of it can mend this
    PENDING = "pending"  # may run; not yet admitted
    WAITING = "waiting"  # admitted, queued for a bot
    RUNNING = "running"  # a bot has leased it
    STOPPING = "stopping"  # cancel was asked, the bot is still ending it
    SUCCESSFUL = "successful"  # its own verdict: good
    FAILED = "failed"  # its own verdict: bad (exit code, its time-out)
    ERROR = "error"  # the system's verdict: bot lost, expired, no bot, deadline
    CANCELED = "canceled"  # a person ended it
    SKIPPED = "skipped"  # its condition can no longer come true


@unique
class Signal(Word):
    """What can happen to a task."""

    RELEASE = "release"  # its gate opened
    BLOCK = "block"  # its gate broke and its policy is to hold
    DOOM = "doom"  # its gate broke and its policy is to fail
    SKIP = "skip"  # its gate can never open, or its policy is to skip
    MEND = "mend"  # what broke its gate is tried again
    REUSE = "reuse"  # an equal result is already known
    ADMIT = "admit"  # order, mutexes and capacity allow it
    UNADMIT = "unadmit"  # its last matching bot is gone, so it gives its mutexes back
    CLAIM = "claim"  # a bot, or the server for its own kinds, takes it
    SUCCEED = "succeed"  # its attempt ended well
    FAIL = "fail"  # its attempt ended badly
    LOSE = "lose"  # the bot was lost with the attempt
    RETURN = "return"  # the bot gives the attempt back: it has not begun
    EXPIRE = "expire"  # its slice waited too long, or nothing could ever serve it
    DEADLINE = "deadline"  # its deadline passed and no process of it lives
    CANCEL = "cancel"  # a person wants it ended
    RERUN = "rerun"  # a person wants it tried again


@unique
class GraphState(Word):
    """Where a graph is; it follows from its tasks, and from the stored fact that it was canceled."""

    RUNNING = "running"
    BLOCKED = "blocked"
    FINISHED = "finished"
    CANCELING = "canceling"  # a person canceled it, and something of it still runs, or is still to be told
    CANCELED = "canceled"


@unique
class On(Word):
    """Which end of a prerequisite meets an edge."""

    SUCCESS = "success"
    FAILURE = "failure"
    ALWAYS = "always"


@unique
class Join(Word):
    """How many met edges open a gate: every one, or the first."""

    ALL = "all"
    ANY = "any"


@unique
class Impossible(Word):
    """What becomes of a task whose gate broke: wait for a rerun, fail with it, or step aside."""

    HOLD = "hold"
    FAIL = "fail"
    SKIP = "skip"


@unique
class Kind(Word):
    """What a payload is."""

    COMMAND = "command"
    SCRIPT = "script"
    PYTHON = "python"
    ANSIBLE = "ansible"
    APPROVAL = "approval"
    GRAPH = "graph"
    NOOP = "noop"


@unique
class Disconnect(Word):
    """What a bot does with a task while the server cannot be reached."""

    STRICT = "strict"  # end it before the lease can be given again
    KEEP = "keep"  # let it go on and report later


@unique
class Reason(Word):
    """Everything finer than a state: why a task is not running, or why it ended as it did."""

    # unscheduled, blocked, skipped: the graph's guard
    PREREQUISITE = "prerequisite"  # waits for a prerequisite to end
    PREREQUISITE_FAILED = "prerequisite_failed"  # a prerequisite failed for good
    CONDITION = "condition"  # its condition can no longer come true
    # pending: the admission guard
    NOT_BEFORE = "not_before"  # a chosen start or a back-off is not over
    MUTEX = "mutex"  # somebody holds, or stands first for, one of its mutexes
    LIMIT = "limit"  # a named limit is used up
    CAPACITY = "capacity"  # its pool is full
    RESERVED = "reserved"  # its pool is kept free for an older task
    NO_BOT = "no_bot"  # no live bot could run it
    UNSEEN = "unseen"  # the next pass of schedule() will judge it
    # waiting: the matching guard
    BOTS_BUSY = "bots_busy"  # bots match and all are busy
    BOTS_AWAY = "bots_away"  # bots match and all are quarantined, in maintenance or dead
    IN_LINE = "in_line"  # a bot is free and others are first
    # running, stopping
    ASSIGNED = "assigned"  # a bot has it in hand, and has not said that it began
    UNDER_WAY = "under_way"
    APPROVAL = "approval"  # a person has to decide
    STOP_ASKED = "stop_asked"
    # ended
    DONE = "done"
    REUSED = "reused"
    EXIT_CODE = "exit_code"
    SIGNALED = "signaled"
    TIMED_OUT = "timed_out"
    SILENT = "silent"  # nothing was printed for too long
    BAD_RESULT = "bad_result"  # what it left as its result, progress or checkpoint cannot be taken
    DENIED = "denied"  # a person said no
    GRAPH_FAILED = "graph_failed"  # the graph inside it did not finish
    BOT_LOST = "bot_lost"
    RETURNED = "returned"  # of an attempt: it came back from its bot before it began
    UNRENEWED = "unrenewed"  # of an attempt: its bot ended it because it could not renew the lease in time
    EXPIRED = "expired"
    DEADLINE = "deadline"
    ASKED = "asked"  # a person canceled it
