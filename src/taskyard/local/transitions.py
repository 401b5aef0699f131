"""What a call does to a task: the machine of `taskyard.core`, compiled into small tables at import.

No arrow is written here. A call is a signal; a flag allows a longer way to the same end, or finding it reached
already. `states.STEPS` has the target of each signal. A local task knows the states in `STATES`, each by its code;
admission is always open here, so a released task never stays pending.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from taskyard.core.states import HOLDING, STEPS, Outcome, Propagation, Signal, State, Step, effects

Steps: TypeAlias = Mapping[tuple[State, Signal, bool], Step]
Path: TypeAlias = tuple[Signal, ...]
Code: TypeAlias = int
#: The code after a call, by the code before it.
Rule: TypeAlias = tuple[Code, ...]

#: The names of states in py3-sched. The index of a state here is its code.
_WORDS: Mapping[State, str] = {
    State.UNSCHEDULED: "not ready",
    State.BLOCKED: "blocked",
    State.WAITING: "ready",
    State.RUNNING: "fetched",
    State.SUCCESSFUL: "delivered",
    State.FAILED: "failed",
    State.ERROR: "failed with an exception",
}
STATES: tuple[State, ...] = tuple(_WORDS)
#: Instead of the code after a call: it is refused.
ILLEGAL: Code = len(STATES)

_OPEN: Path = (Signal.RELEASE, Signal.ADMIT)


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of a call: it allows a longer path to the same end, or (no path) a task that is there already."""

    name: str
    path: Path = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One kind of call, with its rule for every choice of its flags."""

    verb: str
    signal: Signal
    flags: tuple[Flag, ...]
    rules: Mapping[tuple[bool, ...], Rule]

    @property
    def plain(self) -> Rule:
        """The rule when no flag is given."""
        return self.rules[(False,) * len(self.flags)]

    @property
    def move(self) -> tuple[Code, Code]:
        """The one move a call makes when no flag is given."""
        ((source, target),) = ((code, end) for code, end in enumerate(self.plain) if end != ILLEGAL)
        return source, target

    def expected(self, code: Code) -> str:
        """Return the calls that would be legal for a task of this code."""
        for place, flag in enumerate(self.flags):
            given = tuple(place == other for other in range(len(self.flags)))
            if self.rules[given][code] != ILLEGAL:
                return f"pass {flag.name}=True to allow it"
        return f"expected it to be {word(self.move[0])}"


@dataclass(frozen=True, slots=True)
class Rules:
    """The calls of a scheduler, and what they propagate to dependents."""

    fetch: Call
    deliver: Call
    fail: Call
    crash: Call
    unready: Code
    opened: Code
    blocked: Code
    mended: Code


def word(code: Code) -> str:
    """Return the name of a code."""
    return _WORDS[STATES[code]]


def compile_rules(steps: Steps) -> Rules:
    """Derive every rule from the answers of the machine."""
    already_fetched = Flag("fetched_ok")
    failed_before = Flag("failed_ok", (Signal.RERUN, *_OPEN, Signal.CLAIM))
    already_delivered = Flag("delivered_ok")
    never_fetched = {end: Flag("nofetch_ok", (Signal.CLAIM, end)) for end in Signal}
    return Rules(
        fetch=_call("fetch", Signal.CLAIM, (already_fetched, failed_before), steps),
        deliver=_call("deliver", Signal.SUCCEED, (never_fetched[Signal.SUCCEED], already_delivered), steps),
        fail=_call("fail", Signal.FAIL, (never_fetched[Signal.FAIL],), steps),
        # An exception is not the task's own verdict; to the machine its attempt was lost.
        crash=_call("fail", Signal.LOSE, (never_fetched[Signal.LOSE],), steps),
        unready=STATES.index(State.UNSCHEDULED),
        opened=_end(State.UNSCHEDULED, _OPEN, steps),
        blocked=_end(State.UNSCHEDULED, (Signal.BLOCK,), steps),
        mended=_end(State.BLOCKED, (Signal.MEND,), steps),
    )


def _call(verb: str, signal: Signal, flags: tuple[Flag, ...], steps: Steps) -> Call:
    choices = product((False, True), repeat=len(flags))
    rules = {given: _rule(signal, _given(flags, given), steps) for given in choices}
    return Call(verb, signal, flags, rules)


def _given(flags: tuple[Flag, ...], given: tuple[bool, ...]) -> tuple[Flag, ...]:
    return tuple(flag for flag, is_given in zip(flags, given, strict=True) if is_given)


def _rule(signal: Signal, given: tuple[Flag, ...], steps: Steps) -> Rule:
    paths = [(signal,), *(flag.path for flag in given if flag.path)]
    echo_ok = any(not flag.path for flag in given)
    ends = []
    for state in STATES:
        echoes = echo_ok and steps[state, signal, False].outcome is Outcome.ECHO
        reached = [end for path in paths if (end := _end(state, path, steps)) != ILLEGAL]
        ends.append(reached[0] if reached else STATES.index(state) if echoes else ILLEGAL)
    return tuple(ends)


def _end(state: State, path: Path, steps: Steps) -> Code:
    """Follow a path; it leads somewhere only if every signal on it moves the task."""
    for signal in path:
        step = steps[state, signal, False]
        if step.outcome is not Outcome.MOVE:
            return ILLEGAL
        state = step.target
    return STATES.index(state)


RULES = compile_rules(STEPS)
#: What is propagated to dependents, by the codes before and after a call.
PROPAGATIONS: tuple[tuple[Propagation | None, ...], ...] = tuple(
    tuple(effects(source, target).propagates for target in STATES) for source in STATES
)
#: By code: it is ready or fetched.
AVAILABLE: tuple[bool, ...] = tuple(state in HOLDING for state in STATES)
#: By code: it is untouched, and no prerequisite of it failed.
UNKNOWN: tuple[bool, ...] = tuple(code in (RULES.unready, RULES.opened) for code in range(len(STATES)))
