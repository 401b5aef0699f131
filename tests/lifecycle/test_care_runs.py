"""For which failures a task ran to its end: the doctor tells it from events, wherever they can tell."""

from collections.abc import Iterator

import pytest

from taskyard.core.states import GraphState, Signal
from taskyard.lifecycle import failure_handlers, transaction
from taskyard.lifecycle.commands import Report
from taskyard.lifecycle.doctor import check, evidence
from taskyard.lifecycle.doctor.history import End, rounds_handled
from taskyard.lifecycle.failure_handlers import REPORT_RUN
from taskyard.lifecycle.report import end_attempts
from tests.lifecycle.grounds import Grounds, node
from tests.lifecycle.scene import Scene, found
from tests.lifecycle.yard import Labels

#: How many edges fit into one transaction here, and more prerequisites than fit into two.
FITS, MANY = 10, 25


@pytest.fixture
def yard(database_url: str) -> Iterator[Grounds]:
    yard = Grounds(database_url)
    yield yard
    yard.close()


def run(number: int, at_ms: int, before: int, until: int | None = None) -> End:
    return End(number, at_ms, 1, True, False, before, until)


def failure(round: int, number: int, at_ms: int, until: int | None = None) -> End:
    return End(number, at_ms, round, True, True, number - 1, until)


@pytest.mark.parametrize(
    ("runs", "failures", "rounds"),
    [
        pytest.param([], [failure(1, 4, 10)], (None,), id="nobody ran"),
        pytest.param([run(9, 20, 8)], [], (None,), id="nothing failed"),
        pytest.param([run(9, 20, 8)], [failure(1, 4, 10)], (1,), id="it failed before"),
        pytest.param([run(9, 20, 3)], [failure(1, 4, 10)], (1,), id="it failed before while the other ran"),
        pytest.param([run(9, 10, 8)], [failure(1, 4, 10)], (1,), id="it failed before in the same millisecond"),
        pytest.param([run(9, 10, 3)], [failure(1, 4, 10)], (None, 1), id="both may have ended together"),
        pytest.param([run(9, 20, 8)], [failure(1, 4, 10, until=6)], (None,), id="it was tried again"),
        pytest.param([run(9, 20, 8)], [failure(1, 11, 30)], (None, 1), id="it may have failed before it heard"),
        pytest.param([run(9, 20, 8, until=10)], [failure(1, 11, 30)], (None,), id="it has heard before it failed"),
        pytest.param([run(9, 20, 8)], [failure(1, 4, 10, until=12), failure(2, 14, 30)], (1,), id="it failed again"),
        pytest.param(
            [run(9, 20, 8)],
            [failure(1, 4, 10, until=6), failure(2, 14, 30)],
            (None, 2),
            id="it failed again, maybe late",
        ),
        pytest.param(
            [run(9, 20, 8, until=15), run(19, 40, 18)],
            [failure(1, 4, 10, until=12), failure(2, 14, 30)],
            (2,),
            id="the later run counts",
        ),
        pytest.param(
            [run(9, 20, 8, until=15), run(19, 40, 18)],
            [failure(1, 4, 10, until=12), failure(2, 22, 50)],
            (1, 2),
            id="the later run may count",
        ),
    ],
)
def test_events_tell_for_which_round_a_handler_ran(
    runs: list[End], failures: list[End], rounds: tuple[int | None, ...]
) -> None:
    assert rounds_handled(runs, failures) == rounds


def handled_round(scene: Scene) -> list[int | None]:
    return [row[0] for row in scene.rows("SELECT handled_round FROM edge ORDER BY prerequisite_id, on_end")]


def spoil_and_mend(scene: Scene, text: str, *columns: str) -> None:
    """See that what is spoiled is found, and that one repair makes all of it as it was."""
    before = handled_round(scene)
    scene.sql(text)
    wrong = scene.named({("edge", column) for column in columns})
    findings = found(scene.yard)
    assert {(one.kind, one.column) for one in findings if one.kind == "edge"} == wrong
    check.repair(scene.yard.do, findings)
    assert [str(one) for one in found(scene.yard)] == []
    assert handled_round(scene) == before


def test_a_run_while_its_failure_was_tried_again_counts_for_nothing(yard: Grounds, database_url: str) -> None:
    labels = yard.submit({"tasks": {"a": node(), "deal": node(failure=["a"])}})
    scene = Scene(yard, database_url, labels, dict(labels))
    yard.hello("rack1")
    yard.end("rack1", yard.claim("rack1")[0], Signal.FAIL)
    deal = yard.start("rack1", labels, 1)["deal"]
    yard.rerun(labels["a"])
    yard.end("rack1", deal)
    assert handled_round(scene) == [None]
    spoil_and_mend(scene, "UPDATE edge SET handled_round = 1", "handled_round failure of {a}")
    spoil_and_mend(scene, "UPDATE edge SET handled_round = 2", "handled_round failure of {a}")


def test_who_ended_together_with_a_failure_has_not_dealt_with_it_and_that_is_well(yard: Grounds) -> None:
    labels = yard.submit({"tasks": {"a": node(), "b": node(), "deal": node(always=["a", "b"], join="any")}})
    yard.hello("rack1")
    both = yard.start("rack1", labels, 2)
    yard.end("rack1", both["a"])
    deal = yard.start("rack1", labels, 1)["deal"]
    words = [(both["b"], Signal.FAIL), (deal, Signal.SUCCEED)]
    reports = [("rack1", Report(one.task, one.attempt, one.fence, signal)) for one, signal in words]
    yard.do(lambda transaction: end_attempts(transaction, reports))
    assert yard.graph(labels.graph).state is GraphState.BLOCKED
    assert found(yard) == []


def test_wrongs_that_agree_with_each_other_are_mended_at_once(yard: Grounds, database_url: str) -> None:
    labels = yard.submit({"tasks": {"a": node(), "deal": node(failure=["a"], always=["a"])}})
    scene = Scene(yard, database_url, labels, {**labels, "graph": labels.graph})
    yard.hello("rack1")
    yard.end("rack1", yard.claim("rack1")[0], Signal.FAIL)
    yard.end("rack1", yard.claim("rack1")[0])
    assert (handled_round(scene), yard.graph(labels.graph).state) == ([1, 1], GraphState.FINISHED)
    spoil_and_mend(
        scene,
        """UPDATE edge SET handled_round = NULL; UPDATE task SET handlers_ran = 0 WHERE id = {a};
           UPDATE graph SET unhandled = 1, state = 'blocked' WHERE id = {graph}""",
        "handled_round failure of {a}",
        "handled_round always of {a}",
    )
    counted = yard.graph(labels.graph)
    assert (counted.tally.unhandled, counted.state) == (0, GraphState.FINISHED)


def cleanup(yard: Grounds) -> Labels:
    """A task that comes after many others, one of which failed, and that is done."""
    names = [f"t{place}" for place in range(MANY)]
    labels = yard.submit({"tasks": {**{name: node() for name in names}, "clean": node(always=names)}})
    first, *_, last = sorted(names, key=lambda name: labels[name])
    yard.hello("rack1")
    yard.run("rack1", labels, first, last)
    yard.keep_promises()
    yard.run("rack1", labels)
    assert [note.kind for note in yard.notes()] == [REPORT_RUN]
    return Labels(labels.graph, {"clean": labels["clean"], "first": labels[first], "last": labels[last]})


def test_whoever_has_not_heard_of_a_run_yet_does_not_count_it(
    yard: Grounds, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "PROPAGATED_MAX", FITS)
    monkeypatch.setattr(failure_handlers, "PAGE_MAX", FITS)
    monkeypatch.setattr(evidence, "PASTS_MAX", FITS)
    labels = cleanup(yard)
    scene = Scene(yard, database_url, labels, dict(labels))
    assert found(yard) == []
    assert yard.take_up(yard.notes()[0]) is False
    assert handled_round(scene) == [1, *[None] * (MANY - 1)]
    spoil_and_mend(
        scene, "UPDATE edge SET handled_round = NULL WHERE prerequisite_id = {first}", "handled_round always of {first}"
    )
    spoil_and_mend(
        scene, "UPDATE edge SET handled_round = 1 WHERE prerequisite_id = {last}", "handled_round always of {last}"
    )
    yard.keep_promises()
    assert handled_round(scene) == [1, *[None] * (MANY - 2), 1]
    spoil_and_mend(
        scene, "UPDATE edge SET handled_round = NULL WHERE prerequisite_id = {last}", "handled_round always of {last}"
    )
