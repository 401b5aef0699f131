"""The lifecycle package does what the model does, on both databases, at once and in small pages."""

import shutil
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test

from taskyard.core.states import ARROWS, GraphState, Signal
from taskyard.lifecycle import failure_handlers, propagate, selection, submit, transaction
from taskyard.lifecycle.cancel import CANCEL
from taskyard.lifecycle.failure_handlers import PROPAGATE, REPORT_RUN, REPORT_TO_FAILURES
from taskyard.lifecycle.rerun import RERUN
from tests.effort import SOAK, tries
from tests.model.machine import LifecycleMachine
from tests.model.paged_machine import EDGES_MAX, LOOKED_MAX, PAGE_MAX, PROPAGATED_MAX, PagedMachine

#: Shrinking a failing example takes a long time.
pytestmark = pytest.mark.timeout(7_200 if SOAK else 900)

#: The number of steps of an example.
STEPS = 40
#: The seeds of rounds of examples; those that show the rarest things come first. Everything has happened after a few
#: rounds, or never does.
ROUNDS = [5, 4, 14, *range(4), *range(6, 14), *range(15, 24)]
#: What has to happen in good examples: every arrow is taken, and every kind of repeat and refusal occurs.
ARROWS_TAKEN = {
    f"{arrow.source} {arrow.signal} {end}"
    for arrow in ARROWS
    for end in (arrow.target, arrow.again)
    if end is not None and arrow.signal is not Signal.REUSE
}
HAPPENED = {
    "a bot ended an attempt at its deadline",
    "a bot said that it had begun",
    "a late report was refused",
    "a lease outlived an outage",
    "a lease was not lengthened",
    "a lease was renewed",
    "a load was dropped",
    "a load was opened",
    "a new session lost an attempt",
    "a page was run",
    "a poll was repeated",
    "a report was repeated",
    "a stake kept a task back",
    "a submission was repeated",
    "a command was repeated",
    "an extension was refused",
    "an extension was repeated",
    "an old session was refused",
    "another body was refused",
    *(f"a continuation to {kind} was left open" for kind in (PROPAGATE, REPORT_TO_FAILURES, REPORT_RUN, CANCEL, RERUN)),
    *(f"a graph is {state}" for state in GraphState),
}


class Databases:
    """Creates and deletes empty databases."""

    def __init__(self, kind: str, request: pytest.FixtureRequest) -> None:
        self.server = request.getfixturevalue("postgres") if kind == "postgres" else None
        self.template: Path = request.getfixturevalue("sqlite_template")
        self.folder: Path = request.getfixturevalue("tmp_path")
        self.numbers = count()
        # Each of the thousand queries of an example goes to the process of PostgreSQL, which takes longer.
        self.examples = tries(30 if self.server is None else 12)

    def fresh(self) -> str:
        if self.server is not None:
            return str(self.server.fresh())
        return f"sqlite:///{shutil.copy(self.template, self.folder / f'{next(self.numbers)}.db')}"

    def drop(self, url: str) -> None:
        if self.server is not None:
            self.server.drop(url)
        else:
            Path(url.removeprefix("sqlite:///")).unlink()

    def machine(self, base: type[LifecycleMachine]) -> type[LifecycleMachine]:
        """A machine that uses these databases and has counters of its own."""
        return type(base.__name__, (base,), {"fresh": self.fresh, "drop": self.drop, "happened": Counter()})


@pytest.fixture(params=["sqlite", "postgres"])
def databases(request: pytest.FixtureRequest) -> Databases:
    return Databases(request.param, request)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    make_pages_small(monkeypatch)


def make_pages_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "PROPAGATED_MAX", PROPAGATED_MAX)
    monkeypatch.setattr(selection, "PROPAGATED_MAX", PROPAGATED_MAX)
    monkeypatch.setattr(selection, "PAGE_MAX", PAGE_MAX)
    monkeypatch.setattr(selection, "LOOKED_MAX", LOOKED_MAX)
    monkeypatch.setattr(selection, "ROWS_MAX", LOOKED_MAX)
    monkeypatch.setattr(submit, "PAGE_MAX", PAGE_MAX)
    monkeypatch.setattr(submit, "SEEN_MAX", EDGES_MAX)
    monkeypatch.setattr(propagate, "PAGE_MAX", EDGES_MAX)
    monkeypatch.setattr(failure_handlers, "PAGE_MAX", EDGES_MAX)


def run_examples(machine: type[LifecycleMachine], examples: int, **fields: Any) -> Counter[str]:
    """Run so many examples; return what happened in them."""
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=STEPS, **fields))
    return machine.happened


def test_every_step_leads_to_the_same_states_as_in_the_model(databases: Databases) -> None:
    run_examples(databases.machine(LifecycleMachine), databases.examples)


@pytest.mark.usefixtures("small_pages")
def test_propagation_in_small_pages_ends_in_the_states_of_the_model(databases: Databases) -> None:
    run_examples(databases.machine(PagedMachine), databases.examples)


def test_the_examples_take_every_arrow_and_meet_every_refusal(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run the same examples each time, round after round, until everything has happened."""
    databases, happened, missing = Databases("sqlite", request), Counter[str](), ARROWS_TAKEN | HAPPENED
    for number in ROUNDS:
        if not missing:
            break
        happened += run_examples(seed(number)(databases.machine(LifecycleMachine)), 30, database=None)
        with monkeypatch.context() as patch:
            make_pages_small(patch)
            happened += run_examples(seed(number)(databases.machine(PagedMachine)), 12, database=None)
        missing = {what for what in missing if not happened[what]}
    assert missing == set()
