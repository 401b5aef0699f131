"""The rules of the library are those of the machine, compiled; the table of py3-sched is what comes out."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from taskyard.core.states import ARROWS, STEPS, Arrow, Outcome, Propagation, Signal, State, Step, step
from taskyard.local.transitions import (
    AVAILABLE,
    ILLEGAL,
    PROPAGATIONS,
    RULES,
    STATES,
    UNKNOWN,
    Call,
    compile_rules,
    word,
)
from tests.each_row import each_row

S, G = State, Signal

#: py3-sched's table. A row: the state of a task, then each call with the state after it; none there is an error.
TABLE: Mapping[State, Mapping[tuple[str, tuple[bool, ...]], State]] = {
    S.UNSCHEDULED: {},
    S.BLOCKED: {},
    S.WAITING: {
        ("fetch", (False, False)): S.RUNNING,
        ("fetch", (True, False)): S.RUNNING,
        ("fetch", (False, True)): S.RUNNING,
        ("fetch", (True, True)): S.RUNNING,
        ("deliver", (True, False)): S.SUCCESSFUL,
        ("deliver", (True, True)): S.SUCCESSFUL,
        ("fail", (True,)): S.FAILED,
        ("crash", (True,)): S.ERROR,
    },
    S.RUNNING: {
        ("fetch", (True, False)): S.RUNNING,
        ("fetch", (True, True)): S.RUNNING,
        ("deliver", (False, False)): S.SUCCESSFUL,
        ("deliver", (True, False)): S.SUCCESSFUL,
        ("deliver", (False, True)): S.SUCCESSFUL,
        ("deliver", (True, True)): S.SUCCESSFUL,
        ("fail", (False,)): S.FAILED,
        ("fail", (True,)): S.FAILED,
        ("crash", (False,)): S.ERROR,
        ("crash", (True,)): S.ERROR,
    },
    S.SUCCESSFUL: {
        ("deliver", (False, True)): S.SUCCESSFUL,
        ("deliver", (True, True)): S.SUCCESSFUL,
    },
    S.FAILED: {
        ("fetch", (False, True)): S.RUNNING,
        ("fetch", (True, True)): S.RUNNING,
    },
    S.ERROR: {
        ("fetch", (False, True)): S.RUNNING,
        ("fetch", (True, True)): S.RUNNING,
    },
}
CALLS: Mapping[str, Call] = {name: getattr(RULES, name) for name in ("fetch", "deliver", "fail", "crash")}


def without(source: State, signal: Signal) -> dict[tuple[State, Signal, bool], Step]:
    """The answers of a machine that lacks one arrow."""
    return dict(STEPS) | {(source, signal, again): Step(Outcome.ILLEGAL, source) for again in (False, True)}


@each_row("state", STATES)
@each_row(("name", "given"), [(name, given) for name, call in CALLS.items() for given in call.rules])
def test_every_cell_of_the_table(state: State, name: str, given: tuple[bool, ...]) -> None:
    end = CALLS[name].rules[given][STATES.index(state)]
    assert (None if end == ILLEGAL else STATES[end]) == TABLE[state].get((name, given))


@each_row("call", CALLS.values())
@each_row("state", STATES)
def test_a_plain_call_is_one_step_of_the_machine(call: Call, state: State) -> None:
    answer = step(state, call.signal)
    end = call.plain[STATES.index(state)]
    assert (end != ILLEGAL) == (answer.outcome is Outcome.MOVE)
    assert end == ILLEGAL or STATES[end] is answer.target


def test_what_dependents_become_is_where_the_machine_leads() -> None:
    assert STATES[RULES.unready] is S.UNSCHEDULED
    assert STATES[RULES.opened] is step(step(S.UNSCHEDULED, G.RELEASE).target, G.ADMIT).target
    assert STATES[RULES.blocked] is step(S.UNSCHEDULED, G.BLOCK).target
    assert STATES[RULES.mended] is step(S.BLOCKED, G.MEND).target is STATES[RULES.unready]


@pytest.mark.parametrize(
    ("source", "target", "propagation"),
    [
        (S.WAITING, S.RUNNING, None),
        (S.RUNNING, S.SUCCESSFUL, Propagation.SUCCESS),
        (S.WAITING, S.SUCCESSFUL, Propagation.SUCCESS),
        (S.SUCCESSFUL, S.SUCCESSFUL, None),
        (S.RUNNING, S.FAILED, Propagation.FAILURE),
        (S.RUNNING, S.ERROR, Propagation.FAILURE),
        (S.FAILED, S.RUNNING, Propagation.MEND),
        (S.ERROR, S.RUNNING, Propagation.MEND),
    ],
)
def test_what_is_propagated_follows_from_both_states(
    source: State, target: State, propagation: Propagation | None
) -> None:
    assert PROPAGATIONS[STATES.index(source)][STATES.index(target)] is propagation


def test_available_is_ready_or_fetched_and_unknown_is_untouched_and_not_blocked() -> None:
    words = [word(code) for code in range(len(STATES))]
    assert [name for name, there in zip(words, AVAILABLE, strict=True) if there] == ["ready", "fetched"]
    assert [name for name, there in zip(words, UNKNOWN, strict=True) if there] == ["not ready", "ready"]


#: Every arrow that a local task can go along.
USED = [
    (S.UNSCHEDULED, G.RELEASE),
    (S.PENDING, G.ADMIT),
    (S.UNSCHEDULED, G.BLOCK),
    (S.BLOCKED, G.MEND),
    (S.WAITING, G.CLAIM),
    (S.RUNNING, G.SUCCEED),
    (S.RUNNING, G.FAIL),
    (S.RUNNING, G.LOSE),
    (S.FAILED, G.RERUN),
    (S.ERROR, G.RERUN),
]


@each_row(("source", "signal"), USED)
def test_an_arrow_taken_from_the_machine_is_missing_here(source: State, signal: Signal) -> None:
    assert compile_rules(without(source, signal)) != RULES


@each_row("arrow", ARROWS)
def test_no_other_arrow_matters_here(arrow: Arrow) -> None:
    changed = compile_rules(without(arrow.source, arrow.signal)) != RULES
    assert changed == ((arrow.source, arrow.signal) in USED)


def test_an_arrow_that_leads_elsewhere_leads_there_here() -> None:
    bent = dict(STEPS) | {(S.RUNNING, G.FAIL, False): Step(Outcome.MOVE, S.ERROR)}
    assert compile_rules(bent).fail.rules == RULES.crash.rules


def test_an_echo_taken_from_the_machine_is_an_error_here() -> None:
    deaf = without(S.SUCCESSFUL, G.SUCCEED)
    assert compile_rules(deaf).deliver.rules[False, True][STATES.index(S.SUCCESSFUL)] == ILLEGAL
    assert replace(compile_rules(deaf), deliver=RULES.deliver) == RULES
