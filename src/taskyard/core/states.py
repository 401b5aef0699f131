"""The vocabulary of Taskyard and the state machine of a task.

The enums are shared by the store, the wire, the events and the docs; `docs/glossary.md` explains each word. A word's
value is its spelling everywhere outside Python. `ARROWS` is the whole life of a task as one table; `step` answers for
every state and signal, and `effects` says what follows from a transition.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from itertools import product
from types import MappingProxyType
from typing import NewType

#: A moment: milliseconds since 1970-01-01T00:00:00Z.
Millis = NewType("Millis", int)
GraphId = NewType("GraphId", str)
TaskId = NewType("TaskId", str)
BotId = NewType("BotId", str)


class Word(StrEnum):
    """One word of the vocabulary."""

    text: str  # the word as plain text, faster to read than its value

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
    STOPPING = "stopping"  # it was canceled, and the bot is still ending it
    SUCCESSFUL = "successful"  # its attempt succeeded
    FAILED = "failed"  # its attempt failed: exit code, time-out
    ERROR = "error"  # ended by the system: bot lost, expired, no bot, deadline
    CANCELED = "canceled"  # a person canceled it
    SKIPPED = "skipped"  # its condition can no longer come true


@unique
class Signal(Word):
    """The inputs of the state machine."""

    RELEASE = "release"  # its gate opened
    BLOCK = "block"  # its gate broke and its policy is to hold
    DOOM = "doom"  # its gate broke and its policy is to fail
    SKIP = "skip"  # its gate can never open, or its policy is to skip
    MEND = "mend"  # a prerequisite that broke its gate is rerun
    REUSE = "reuse"  # an equal result is already known
    ADMIT = "admit"  # order, mutexes and capacity allow it
    UNADMIT = "unadmit"  # its last matching bot is gone, so it releases its mutexes
    CLAIM = "claim"  # a bot, or the server for its own kinds, takes it
    SUCCEED = "succeed"  # its attempt succeeded
    FAIL = "fail"  # its attempt failed
    LOSE = "lose"  # the bot was lost with the attempt
    RETURN = "return"  # the bot returned the attempt before it began
    EXPIRE = "expire"  # its slice waited too long, or nothing could ever serve it
    DEADLINE = "deadline"  # its deadline passed and no process of it lives
    CANCEL = "cancel"  # a person canceled it
    RERUN = "rerun"  # a person reruns it


@unique
class GraphState(Word):
    """Where a graph is; it follows from its tasks, and from the stored fact that it was canceled."""

    RUNNING = "running"
    BLOCKED = "blocked"
    FINISHED = "finished"
    CANCELING = "canceling"  # a person canceled it, and something of it still runs, or is not canceled yet
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
    """What happens to a task whose gate broke: wait for a rerun, fail, or be skipped."""

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
    GIT = "git"
    APPROVAL = "approval"
    GRAPH = "graph"
    LAUNCH = "launch"  # of a template, by a node of a workflow
    LINK = "link"  # to the update of a resource, in another graph
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
    NO_SECRET = "no_secret"  # a secret that it names does not exist  # noqa: S105 - a word
    NO_SECRET_KEY = "no_secret_key"  # its key is not there  # noqa: S105
    MUTEX = "mutex"  # another task holds or has staked one of its mutexes
    LIMIT = "limit"  # a named limit is used up
    CAPACITY = "capacity"  # its pool is full
    RESERVED = "reserved"  # its pool is kept free for an older task
    NO_BOT = "no_bot"  # no live bot could run it
    UNSEEN = "unseen"  # the next pass of schedule() will judge it
    DUPLICATE_OF = "duplicate_of"  # an equal task is under way, and its result will be reused
    # waiting: the matching guard
    BOTS_BUSY = "bots_busy"  # bots match and all are busy
    BOTS_AWAY = "bots_away"  # bots match and all are quarantined, in maintenance or dead
    IN_LINE = "in_line"  # a bot is free and others are first
    # running, stopping
    ASSIGNED = "assigned"  # a bot has prefetched it, and has not begun it
    UNDER_WAY = "under_way"
    APPROVAL = "approval"  # a person has to decide
    UPDATE = "update"  # an update in another graph has to end
    STOP_ASKED = "stop_asked"
    # ended
    DONE = "done"
    REUSED = "reused"
    EXIT_CODE = "exit_code"
    SIGNALED = "signaled"
    TIMED_OUT = "timed_out"
    SILENT = "silent"  # nothing was printed for too long
    BAD_RESULT = "bad_result"  # its result, progress, checkpoint or output files are invalid
    DENIED = "denied"  # a person denied it
    GRAPH_FAILED = "graph_failed"  # the graph inside it did not finish
    UPDATE_FAILED = "update_failed"  # the update that it stands for did not succeed
    BOT_LOST = "bot_lost"
    POISON = "poison"  # it was lost with so many bots that it is not tried again
    MISSING = "missing"  # its playbook, its inventory or its files are not there
    BOT_FAILED = "bot_failed"  # its bot could not run it: a program of the bot is missing, or crashed
    RETURNED = "returned"  # of an attempt: its bot returned it before it began
    UNRENEWED = "unrenewed"  # of an attempt: its bot ended it because it could not renew the lease in time
    EXPIRED = "expired"
    DEADLINE = "deadline"
    ASKED = "asked"  # a person canceled it


# The state machine.
#
# Every arrow is in `ARROWS` and nowhere else. What follows from a transition depends only on its two ends (`effects`),
# not on the code that caused it.
#
# `step` is total: for every state and signal it answers with a move, an echo (the effect already holds) or illegal; the
# last two change nothing. Hot paths look the answer up in `STEPS`, which is compiled from the table at import.


_S, _G = State, Signal


@dataclass(frozen=True, slots=True)
class Arrow:
    """From `source`, on `signal`, a task goes to `target`; or to `again` while that signal's budget lasts."""

    source: State
    signal: Signal
    target: State
    again: State | None = None


ARROWS: tuple[Arrow, ...] = (
    # The graph's guard: prerequisites are met, broken, mended or impossible.
    Arrow(_S.UNSCHEDULED, _G.RELEASE, _S.PENDING),
    Arrow(_S.UNSCHEDULED, _G.BLOCK, _S.BLOCKED),
    Arrow(_S.UNSCHEDULED, _G.DOOM, _S.FAILED),
    Arrow(_S.UNSCHEDULED, _G.SKIP, _S.SKIPPED),
    Arrow(_S.BLOCKED, _G.SKIP, _S.SKIPPED),
    Arrow(_S.BLOCKED, _G.MEND, _S.UNSCHEDULED),
    Arrow(_S.SKIPPED, _G.MEND, _S.UNSCHEDULED),
    # The admission guard: order, mutexes, capacity.
    Arrow(_S.PENDING, _G.ADMIT, _S.WAITING),
    Arrow(_S.WAITING, _G.UNADMIT, _S.PENDING),
    # The matching guard: dimensions and slices.
    Arrow(_S.WAITING, _G.CLAIM, _S.RUNNING),
    Arrow(_S.WAITING, _G.EXPIRE, _S.ERROR, again=_S.PENDING),  # again while slices last
    Arrow(_S.PENDING, _G.EXPIRE, _S.ERROR, again=_S.PENDING),
    # A result that is known already.
    Arrow(_S.UNSCHEDULED, _G.REUSE, _S.SUCCESSFUL),
    Arrow(_S.PENDING, _G.REUSE, _S.SUCCESSFUL),
    # The end of an attempt.
    Arrow(_S.RUNNING, _G.SUCCEED, _S.SUCCESSFUL),
    Arrow(_S.RUNNING, _G.FAIL, _S.FAILED, again=_S.PENDING),  # again while reruns last
    Arrow(_S.RUNNING, _G.LOSE, _S.ERROR, again=_S.PENDING),  # again while retries last
    Arrow(_S.RUNNING, _G.RETURN, _S.PENDING),
    Arrow(_S.STOPPING, _G.SUCCEED, _S.CANCELED),
    Arrow(_S.STOPPING, _G.FAIL, _S.CANCELED),
    Arrow(_S.STOPPING, _G.LOSE, _S.CANCELED),
    Arrow(_S.STOPPING, _G.RETURN, _S.CANCELED),
    # The deadline: never again.
    Arrow(_S.UNSCHEDULED, _G.DEADLINE, _S.ERROR),
    Arrow(_S.BLOCKED, _G.DEADLINE, _S.ERROR),
    Arrow(_S.PENDING, _G.DEADLINE, _S.ERROR),
    Arrow(_S.WAITING, _G.DEADLINE, _S.ERROR),
    Arrow(_S.RUNNING, _G.DEADLINE, _S.ERROR),
    Arrow(_S.STOPPING, _G.DEADLINE, _S.CANCELED),
    # People.
    Arrow(_S.UNSCHEDULED, _G.CANCEL, _S.CANCELED),
    Arrow(_S.BLOCKED, _G.CANCEL, _S.CANCELED),
    Arrow(_S.PENDING, _G.CANCEL, _S.CANCELED),
    Arrow(_S.WAITING, _G.CANCEL, _S.CANCELED),
    Arrow(_S.RUNNING, _G.CANCEL, _S.STOPPING),
    Arrow(_S.FAILED, _G.RERUN, _S.UNSCHEDULED),
    Arrow(_S.ERROR, _G.RERUN, _S.UNSCHEDULED),
    Arrow(_S.CANCELED, _G.RERUN, _S.UNSCHEDULED),
)

#: Where the effect of a signal already holds. An attempt's signals are matched to their attempt before they
#: come here (`attempt_policy.report`), so a late one for an older attempt never arrives here.
ECHOES: Mapping[Signal, frozenset[State]] = MappingProxyType(
    {
        # A released task is never taken back: a second met edge finds it active.
        _G.RELEASE: frozenset({_S.PENDING, _S.WAITING, _S.RUNNING, _S.STOPPING, _S.SUCCESSFUL}),
        _G.BLOCK: frozenset({_S.BLOCKED}),
        _G.DOOM: frozenset({_S.FAILED}),
        _G.SKIP: frozenset({_S.SKIPPED}),
        # Only blocked and skipped tasks wait for a mend; a task failed by policy stays failed.
        _G.MEND: frozenset(_S) - {_S.BLOCKED, _S.SKIPPED},
        _G.REUSE: frozenset({_S.SUCCESSFUL}),
        _G.ADMIT: frozenset({_S.WAITING}),
        _G.UNADMIT: frozenset({_S.PENDING}),
        _G.CLAIM: frozenset({_S.RUNNING}),
        _G.SUCCEED: frozenset({_S.SUCCESSFUL, _S.CANCELED}),
        _G.FAIL: frozenset({_S.FAILED, _S.CANCELED}),
        _G.LOSE: frozenset({_S.ERROR, _S.CANCELED}),
        _G.RETURN: frozenset({_S.PENDING, _S.WAITING, _S.CANCELED}),
        _G.EXPIRE: frozenset({_S.ERROR}),
        _G.DEADLINE: frozenset({_S.ERROR, _S.CANCELED}),
        _G.CANCEL: frozenset({_S.STOPPING, _S.CANCELED}),
        # Asking twice for a rerun is one rerun.
        _G.RERUN: frozenset({_S.UNSCHEDULED, _S.PENDING, _S.WAITING, _S.RUNNING}),
    }
)

#: The reason that a signal gives a task, unless the sender has a better one: an exit code, a time-out, a denial.
REASONS: Mapping[Signal, Reason] = MappingProxyType(
    {
        _G.RELEASE: Reason.UNSEEN,
        _G.BLOCK: Reason.PREREQUISITE_FAILED,
        _G.DOOM: Reason.PREREQUISITE_FAILED,
        _G.SKIP: Reason.CONDITION,
        _G.MEND: Reason.PREREQUISITE,
        _G.REUSE: Reason.REUSED,
        _G.ADMIT: Reason.IN_LINE,
        _G.UNADMIT: Reason.NO_BOT,
        _G.CLAIM: Reason.UNDER_WAY,
        _G.SUCCEED: Reason.DONE,
        _G.FAIL: Reason.EXIT_CODE,
        _G.LOSE: Reason.BOT_LOST,
        _G.RETURN: Reason.RETURNED,
        _G.EXPIRE: Reason.EXPIRED,
        _G.DEADLINE: Reason.DEADLINE,
        _G.CANCEL: Reason.ASKED,
        _G.RERUN: Reason.PREREQUISITE,
    }
)

#: Ended: nothing happens any more, unless a person reruns the task or a prerequisite is mended.
ENDED = frozenset({_S.SUCCESSFUL, _S.FAILED, _S.ERROR, _S.CANCELED, _S.SKIPPED})
#: Ended without success: meets `failure` edges, breaks `success` edges.
UNSUCCESSFUL = frozenset({_S.FAILED, _S.ERROR, _S.CANCELED})
#: Did not succeed, or cannot as things are: people look for these.
GONE_WRONG = UNSUCCESSFUL | {_S.BLOCKED}
#: Has its mutexes, its weight and its share of named limits.
HOLDING = frozenset({_S.WAITING, _S.RUNNING, _S.STOPPING})
#: Is in its queue.
QUEUED = frozenset({_S.WAITING})
#: A bot may have a process of it.
LEASED = frozenset({_S.RUNNING, _S.STOPPING})
#: Its bot is asked to end it.
STOPPED = frozenset({_S.STOPPING})
#: Moves by itself: by a pass, a bot or the clock.
ACTIVE = HOLDING | {_S.PENDING}
#: Moves only when a prerequisite does.
BEHIND = frozenset({_S.UNSCHEDULED, _S.BLOCKED})
#: Waits for a rerun of a prerequisite.
SHUT = frozenset({_S.BLOCKED})
#: States without an arrow out.
FINAL = frozenset(_S) - {arrow.source for arrow in ARROWS}


@unique
class Outcome(StrEnum):
    """The kinds of answer that `step` gives."""

    MOVE = "move"
    ECHO = "echo"
    ILLEGAL = "illegal"


@dataclass(frozen=True, slots=True)
class Step:
    """An answer of the machine; `target` is the state afterwards, whether the task moved or not."""

    outcome: Outcome
    target: State


def step(state: State, signal: Signal, again: bool = False) -> Step:
    """Return what `signal` does to a task in `state`; `again` says that its budget lasts."""
    return STEPS[state, signal, again]


@unique
class Propagation(StrEnum):
    """What is propagated to the out-edges of a task when it moves."""

    SUCCESS = "success"
    FAILURE = "failure"
    SKIP = "skip"
    MEND = "mend"


@dataclass(frozen=True, slots=True)
class Effects:
    """What follows from a move, whatever caused it. A change is +1, 0 or -1."""

    propagates: Propagation | None  # what is propagated to dependents
    pending: int  # begins to wait for admission, or ends to
    queued: int  # enters or leaves its queue
    holding: int  # takes or releases mutexes, weight and limits
    leased: int  # an attempt starts or ends
    active: int  # the graph's count of tasks that move by themselves
    behind: int  # the graph's count of tasks that wait for a prerequisite
    new_round: bool  # fresh reruns, retries and slices
    judged: bool  # has to be judged by the admission guard, anew or for another slice


def effects(source: State, target: State) -> Effects:
    """Return what follows when a task goes from `source` to `target`."""
    return EFFECTS[source, target]


def _effects(source: State, target: State) -> Effects:
    return Effects(
        propagates=_propagation(source, target),
        pending=_change(frozenset({State.PENDING}), source, target),
        queued=_change(QUEUED, source, target),
        holding=_change(HOLDING, source, target),
        leased=_change(LEASED, source, target),
        active=_change(ACTIVE, source, target),
        behind=_change(BEHIND, source, target),
        new_round=source in UNSUCCESSFUL and target is State.UNSCHEDULED,
        judged=target is State.PENDING,
    )


def propagation_of(state: State) -> Propagation | None:
    """Return what is propagated to a new edge of a task in `state`; None while that task has not ended."""
    if state in UNSUCCESSFUL:
        return Propagation.FAILURE
    return {State.SUCCESSFUL: Propagation.SUCCESS, State.SKIPPED: Propagation.SKIP}.get(state)


def sources(signal: Signal) -> frozenset[State]:
    """Return the states in which `signal` moves a task."""
    return frozenset(arrow.source for arrow in ARROWS if arrow.signal is signal)


def _change(group: frozenset[State], source: State, target: State) -> int:
    return (target in group) - (source in group)


def _propagation(source: State, target: State) -> Propagation | None:
    before, after = propagation_of(source), propagation_of(target)
    if before is after:
        return None
    return after or Propagation.MEND


def _compile() -> Mapping[tuple[State, Signal, bool], Step]:
    arrows = {(arrow.source, arrow.signal): arrow for arrow in ARROWS}
    assert len(arrows) == len(ARROWS), "two arrows leave one state on one signal"
    domain = product(State, Signal, (False, True))
    return MappingProxyType({case: _answer(arrows, *case) for case in domain})


def _answer(arrows: Mapping[tuple[State, Signal], Arrow], state: State, signal: Signal, again: bool) -> Step:
    arrow = arrows.get((state, signal))
    if arrow is None:
        return Step(Outcome.ECHO if state in ECHOES[signal] else Outcome.ILLEGAL, state)
    return Step(Outcome.MOVE, arrow.again if again and arrow.again else arrow.target)


#: Every answer of `step`, by (state, signal, again).
STEPS: Mapping[tuple[State, Signal, bool], Step] = _compile()
#: Every answer of `effects`, by (source, target).
EFFECTS: Mapping[tuple[State, State], Effects] = MappingProxyType(
    {(source, target): _effects(source, target) for source, target in product(State, State)}
)
