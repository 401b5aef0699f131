"""Leases with definitions, and what attempts publish while they run."""

import json
from typing import Any

import pytest

from taskyard.core.states import Signal, State
from taskyard.lifecycle import report as report_module
from taskyard.lifecycle.commands import (
    AttemptDefinition,
    Code,
    Done,
    Lease,
    Output,
    OutputStored,
    Poll,
    Publish,
    Refusal,
    Renewal,
    Report,
)
from taskyard.lifecycle.poll import PollOutcome
from taskyard.store.repo.output import StatsRow
from taskyard.wire.bot_protocol import Stats
from tests.engine.harness import EngineHarness, graph, report, task


def leases_with_definitions(harness: EngineHarness, want: int = 1, bot: str = "b1") -> tuple[Lease, ...]:
    answer = harness.engine.poll(Poll(bot, "s1", harness.clock.word(), want=want, with_definitions=True))
    assert isinstance(answer, PollOutcome), answer
    return answer.leases


def definition_of(lease: Lease) -> AttemptDefinition:
    assert lease.definition is not None
    return lease.definition


def said(harness: EngineHarness, **words: Any) -> PollOutcome:
    answer = harness.engine.poll(Poll("b1", "s1", **words))
    assert isinstance(answer, PollOutcome), answer
    return answer


def piece(lease: Lease, start: int, body: bytes, **changed: int) -> Output:
    known = {"task": lease.task, "attempt": lease.attempt, "fence": lease.fence} | changed
    return Output(known["task"], known["attempt"], known["fence"], start, body)


def printed(harness: EngineHarness, lease: Lease) -> bytes:
    with harness.store.read() as repo:
        return b"".join(body for _, body in repo.output.chunks(lease.task, lease.attempt, 0, 100))


def test_a_lease_comes_with_the_definition_of_its_task(harness: EngineHarness) -> None:
    harness.hello()
    labels = harness.submit(graph(a=task(payload={"command": ["make", "\u00fc"]}, disconnect="keep", deadline="1h")))
    (lease,) = leases_with_definitions(harness)
    definition = definition_of(lease)
    assert json.loads(definition.payload) == {"command": ["make", "\u00fc"]}
    assert (definition.graph, definition.label, definition.disconnect) == (labels.graph, "a", "keep")
    assert definition.deadline_ms == harness.clock.now() + 3_600_000
    assert (definition.inputs, definition.checkpoint) == (None, None)


def test_a_second_slice_brings_its_own_payload(harness: EngineHarness) -> None:
    harness.hello()
    slices = [
        {"dimensions": {"pool": "none"}, "payload": {"command": ["one"]}},
        {"dimensions": {"pool": "default"}, "payload": {"command": ["two"]}},
    ]
    harness.submit({"tasks": {"a": {"task": {"slices": slices}}}})
    (lease,) = leases_with_definitions(harness)
    assert json.loads(definition_of(lease).payload) == {"command": ["two"]}


def test_a_lease_comes_with_the_results_of_prerequisites_by_label(harness: EngineHarness) -> None:
    harness.hello()
    harness.submit(graph(a=task(), b=task(), quiet=task(), c=task("a", "b", "quiet")))
    for lease in leases_with_definitions(harness, 3):
        label = definition_of(lease).label
        result = None if label == "quiet" else json.dumps({"from": label})
        said(harness, reports=(report(lease, result=result),))
    (last,) = leases_with_definitions(harness)
    assert json.loads(definition_of(last).inputs or "") == {"a": {"from": "a"}, "b": {"from": "b"}}


def test_the_next_attempt_gets_the_newest_checkpoint(harness: EngineHarness) -> None:
    harness.hello()
    harness.submit(graph(a={**task(), "reruns": 1}))
    (lease,) = leases_with_definitions(harness)
    for left in (b"one", b"two"):
        said(harness, renewals=(Renewal(lease.task, 1, lease.fence, "half way", left),))
    said(harness, reports=(report(lease, Signal.FAIL),))
    (again,) = leases_with_definitions(harness)
    assert (again.attempt, definition_of(again).checkpoint) == (2, b"two")


def test_output_is_kept_once_however_it_is_sent(harness: EngineHarness) -> None:
    harness.hello()
    harness.submit(graph(a=task()))
    (lease,) = harness.claim()
    kept = said(harness, outputs=(piece(lease, 0, b"abc"), piece(lease, 3, b"de"))).outputs
    assert kept == (OutputStored(lease.task, 1, 3), OutputStored(lease.task, 1, 5))
    assert said(harness, outputs=(piece(lease, 0, b"abc"),)).outputs == (OutputStored(lease.task, 1, 5),)
    assert said(harness, outputs=(piece(lease, 3, b"def"),)).outputs == (OutputStored(lease.task, 1, 6),)
    assert said(harness, outputs=(piece(lease, 9, b"gap"),)).outputs == (OutputStored(lease.task, 1, 6),)
    assert printed(harness, lease) == b"abcdef"


def test_the_last_output_and_the_end_are_one_request_that_can_be_repeated(harness: EngineHarness) -> None:
    harness.hello()
    harness.submit(graph(a=task()))
    (lease,) = harness.claim()
    words = {"outputs": (piece(lease, 0, b"bye"),), "reports": (report(lease),)}
    assert said(harness, **words).outputs == said(harness, **words).outputs == (OutputStored(lease.task, 1, 3),)
    late = said(harness, outputs=(piece(lease, 3, b"later"),)).outputs[0]
    assert isinstance(late, Refusal)
    assert (late.code, printed(harness, lease)) == (Code.LEASE_LOST, b"bye")


def test_what_another_attempt_or_bot_prints_is_refused(harness: EngineHarness) -> None:
    harness.hello()
    harness.hello("b2")
    harness.submit(graph(a=task()))
    (lease,) = harness.claim(bot="b2")
    for changed in ({}, {"attempt": 2}, {"fence": lease.fence + 1}, {"task": 7}):
        (answer,) = said(harness, outputs=(piece(lease, 0, b"x", **changed),)).outputs
        assert isinstance(answer, Refusal)
        assert answer.code is Code.LEASE_LOST
    assert printed(harness, lease) == b""


def test_the_statistics_of_an_attempt_are_stored_with_its_end_once(harness: EngineHarness) -> None:
    harness.hello()
    harness.submit(graph(a=task()))
    (lease,) = harness.claim()
    took = Stats(1, None, None, 2, 3, None, 0.5, 4, 5, 6)
    ended = Report(lease.task, 1, lease.fence, Signal.SUCCEED, stats=took, truncated=True)
    said(harness, reports=(ended,))
    said(harness, reports=(ended,))
    with harness.store.read() as repo:
        assert repo.output.stats(lease.task) == {1: StatsRow(1, 1, None, None, 2, 3, None, 0.5, 4, 5, 6, 1)}


def test_a_running_task_speaks_for_itself_until_it_ends(harness: EngineHarness) -> None:
    harness.hello()
    labels = harness.submit(graph(a=task(), b=task("a")))
    (lease,) = harness.claim()
    spoken = Publish(lease.task, 1, lease.fence, '{"x":1}', "half way", b"left")
    assert harness.engine.publish(spoken) is None
    with harness.store.read() as repo:
        assert repo.output.progress([labels["a"]]) == {labels["a"]: "half way"}
    harness.end(lease)
    (next_,) = leases_with_definitions(harness)
    assert definition_of(next_).inputs == '{"a":{"x":1}}'
    late = harness.engine.publish(spoken)
    assert isinstance(late, Refusal)
    assert late.code is Code.LEASE_LOST


def test_the_beginning_of_an_output_is_kept_up_to_the_limit(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_module, "OUTPUT_MAX", 10)
    harness.hello()
    harness.submit(graph(a=task()))
    (lease,) = leases_with_definitions(harness)
    kept = said(
        harness, outputs=(piece(lease, 0, b"123456"), piece(lease, 6, b"789012"), piece(lease, 12, b"34"))
    ).outputs
    assert kept == (OutputStored(lease.task, 1, 6), OutputStored(lease.task, 1, 10), OutputStored(lease.task, 1, 10))
    assert printed(harness, lease) == b"1234567890"
    ended = Report(lease.task, 1, lease.fence, Signal.SUCCEED, exit_code=0, truncated=True)
    assert said(harness, reports=(ended,)).reports == (Done(lease.task, State.SUCCESSFUL),)
