"""Commands are validated before they are queued: every fault is listed with its path, and nothing is stored.

Both databases are tested, because each has values that it cannot store.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from taskyard.core.graph.model import DIMENSION_VALUE_MAX, NAME_MAX
from taskyard.core.matching import canonical
from taskyard.core.states import Reason, Signal, State
from taskyard.engine import validate
from taskyard.engine.engine import AsyncEngine
from taskyard.lifecycle.commands import (
    Approve,
    Begun,
    BulkOutcome,
    Cancel,
    Code,
    Done,
    Goodbye,
    Hello,
    Lease,
    Output,
    Poll,
    Publish,
    Refusal,
    Renewal,
    Report,
    Rerun,
)
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.submit import Submitted
from taskyard.store.queries import StoreUnavailable
from taskyard.views.history import TaskHistory
from taskyard.wire import bot_protocol
from taskyard.wire.bot_protocol import (
    BOT_DIMENSION_VALUES_MAX,
    BOT_DIMENSIONS_MAX,
    CHECKPOINT_MAX,
    EXIT_CODE_MAX,
    EXIT_CODE_MIN,
    NOTHING,
    NUMBER_MAX,
    PIECE_MAX,
    POLL_ITEMS_MAX,
    PROGRESS_MAX,
    RESULT_MAX,
    RESULTS_MAX,
    SLOTS_MAX,
    WHY_MAX,
    Stats,
    TaskKey,
)
from tests.effort import tries
from tests.engine.harness import WAIT_S, EngineHarness, graph, raw, report, task, wide
from tests.lifecycle.harness import Labels

NUL, LONE, BREAK = "a\0b", "a\ud800b", "a\nb"
BEYOND = NUMBER_MAX + 1
DIMENSIONS = canonical({"id": "b1", "pool": "default"})
#: What no number of a command can be.
NO_NUMBERS = [-1, BEYOND, 10**40, None, True, "1", 1.0, b"1"]
#: What no name can be.
ENDS_OF_ATTEMPTS = "succeed, fail, lose, return, deadline"
NO_BEGUN: list[Any] = [[], 1, "x", b"x", {}]
NO_NAMES = [NUL, LONE, BREAK, "\u202e", " a", None, 7, b"a", Signal.FAIL, "x" * (NAME_MAX + 1)]
#: What no text can be.
NO_TEXTS = ["", NUL, LONE, 7, b"a", ["a"]]
#: What no result can be.
NO_RESULTS: list[Any] = [None, "", "{}", 7, b"a", ["a"]]


class LeasedTask(NamedTuple):
    """An engine with a graph in it, one task of which a bot has."""

    harness: EngineHarness
    labels: Labels
    lease: Lease


Ask = Callable[[LeasedTask], object]
Case = tuple[str, Ask, tuple[str, ...]]


@pytest.fixture
def leased_task(harness: EngineHarness) -> LeasedTask:
    harness.hello()
    labels = harness.submit(graph(a=task(), b=task("a")))
    (lease,) = harness.claim()
    return LeasedTask(harness, labels, lease)


def said(lease: Lease, **changed: object) -> Report:
    fields: dict[str, Any] = {"task": lease.task, "attempt": lease.attempt, "fence": lease.fence}
    return Report(**{**fields, "signal": Signal.SUCCEED, **changed})


def reporting(**changed: object) -> Ask:
    return lambda leased_task: leased_task.harness.engine.poll(polled(reports=(said(leased_task.lease, **changed),)))


def renewing(**changed: object) -> Ask:
    return lambda leased_task: leased_task.harness.engine.poll(
        polled(renewals=(Renewal(**leased(leased_task, changed)),))
    )


def printing(**changed: object) -> Ask:
    said = {"start": 0, "body": b"", **changed}
    return lambda leased_task: leased_task.harness.engine.poll(polled(outputs=(Output(**leased(leased_task, said)),)))


def publishing(**changed: object) -> Ask:
    return lambda leased_task: leased_task.harness.engine.publish(Publish(**leased(leased_task, changed)))


def leased(leased_task: LeasedTask, changed: Mapping[str, Any]) -> dict[str, Any]:
    lease = {"task": leased_task.lease.task, "attempt": leased_task.lease.attempt, "fence": leased_task.lease.fence}
    return {**lease, **changed}


def polled(**changed: object) -> Poll:
    return Poll(**{"bot": "b1", "session": "s1", **changed})  # type: ignore[arg-type]


def polling(**changed: object) -> Ask:
    return lambda leased_task: leased_task.harness.engine.poll(polled(**changed))


def greeting(**changed: object) -> Ask:
    fields: dict[str, Any] = {"bot": "b1", "session": "s2", "dimensions": DIMENSIONS, **changed}
    return lambda leased_task: leased_task.harness.engine.hello(Hello(**fields))


def leaving(**changed: object) -> Ask:
    fields: dict[str, Any] = {"bot": "b1", "session": "s1", **changed}
    return lambda leased_task: leased_task.harness.engine.goodbye(Goodbye(**fields))


def canceling(**changed: Any) -> Ask:
    return lambda leased_task: leased_task.harness.engine.cancel(
        Cancel(**{"graph": leased_task.labels.graph, **changed})
    )


def rerunning(**changed: Any) -> Ask:
    return lambda leased_task: leased_task.harness.engine.rerun(Rerun(**{"graph": leased_task.labels.graph, **changed}))


def deciding(**changed: Any) -> Ask:
    return lambda leased_task: leased_task.harness.engine.approve(
        Approve(**{"task": leased_task.lease.task, "approved": True, **changed})
    )


def submitting(**changed: Any) -> Ask:
    return lambda leased_task: leased_task.harness.engine.submit(graph(z=task()), **changed)


def extending(**changed: Any) -> Ask:
    return lambda leased_task: leased_task.harness.engine.extend(
        document=graph(z=task()), **{"graph_id": leased_task.labels.text, **changed}
    )


def asking(command: Callable[[EngineHarness], Callable[[Any], object]], value: object) -> Ask:
    return lambda leased_task: command(leased_task.harness)(value)


def fields_of(asks: Callable[..., Ask], prefix: str, bad: dict[str, list[Any]]) -> Iterator[Case]:
    for name, values in bad.items():
        for place, value in enumerate(values):
            yield f"{asks.__name__} {name} {place}: {value!r:.20}", asks(**{name: value}), (f"{prefix}{name}",)


def single_faults() -> Iterator[Case]:
    """Each field of each command with everything that it cannot be."""
    attempt = {"task": NO_NUMBERS, "attempt": [0, *NO_NUMBERS], "fence": NO_NUMBERS}
    ends: dict[str, list[Any]] = {
        "signal": [one for one in Signal if one not in {"succeed", "fail", "lose", "return", "deadline"}]
        + ["succeed", None, 1],
        "reason": [Reason.CAPACITY, Reason.BOT_LOST, "timed_out", 1],
        "exit_code": [EXIT_CODE_MIN - 1, EXIT_CODE_MAX + 1, BEYOND, True, "0", 1.5],
        "result": [*NO_RESULTS, raw("x" * (RESULT_MAX + 1)), raw(NUL), raw(LONE), raw("[" * 1_000)],
        "truncated": [None, 1],
    }
    bot = {"bot": ["", *NO_NAMES], "session": ["", *NO_NAMES]}
    person = {"actor": NO_NAMES, "key": NO_NAMES}
    subject = {"task": NO_NUMBERS[:3] + NO_NUMBERS[4:], "graph": NO_NUMBERS[:3] + NO_NUMBERS[4:]}
    why = [*NO_TEXTS, "x" * (WHY_MAX + 1)]
    yield from fields_of(reporting, "reports[0].", attempt | ends)
    says: dict[str, list[Any]] = {
        "progress": [*NO_TEXTS, "x" * (PROGRESS_MAX + 1)],
        "checkpoint": ["x", 1, b"x" * (CHECKPOINT_MAX + 1)],
    }
    yield from fields_of(reporting, "reports[0].", {"stats": [1, "x", {}]})
    for name, value in (
        ("ran_ms", -1),
        ("cpu_s", 1),
        ("cpu_s", float("nan")),
        ("memory_bytes", True),
    ):
        spoiled: dict[str, Any] = {name: value}
        yield f"stats {name} {value!r}", reporting(stats=Stats(**spoiled)), (f"reports[0].stats.{name}",)
    yield from fields_of(renewing, "renewals[0].", attempt | says)
    yield from fields_of(
        printing, "outputs[0].", attempt | {"start": NO_NUMBERS, "body": ["x", b"x" * (PIECE_MAX + 1)]}
    )
    yield from fields_of(publishing, "", attempt | says | {"result": [*NO_TEXTS, "x" * (RESULT_MAX + 1)]})
    yield from fields_of(polling, "", bot | {"poll": NO_NAMES, "want": NO_NUMBERS})
    yield from fields_of(polling, "", {"begun": NO_BEGUN})
    yield from fields_of(greeting, "", {"begun": NO_BEGUN})
    yield from fields_of(greeting, "", {"replaces": NO_NAMES, "adopts": [None, *NO_BEGUN]})
    yield from fields_of(
        polling, "", {"wait_ms": [None, "1", True], "with_definitions": [None, "no"], "outputs": [None, [], 1]}
    )
    yield from fields_of(greeting, "", bot | {"slots": [0, SLOTS_MAX + 1, *NO_NUMBERS]})
    yield from fields_of(greeting, "", {"quarantined": why, "maintenance": why, "draining": [None, 1, "no"]})
    yield from fields_of(leaving, "", bot)
    yield from fields_of(canceling, "", subject | person | {"subtree": [None, 1, "yes"]})
    yield from fields_of(rerunning, "", subject | person)
    yield from fields_of(deciding, "", person | {"task": NO_NUMBERS, "approved": [None, 1], "comment": [None, NUL]})
    yield from fields_of(submitting, "", person | {"graph_id": ["", "7", NUL, LONE, 7, "0" * 16, "f" * 16]})
    yield from fields_of(extending, "", {"actor": NO_NAMES, "graph_id": [None, "", "7", NUL, LONE, 7, "0" * 16]})


def odd_shapes() -> Iterator[Case]:
    """What is wrong with more than one field, or with a whole part."""
    many = (Renewal(1, 1, 1),) * (POLL_ITEMS_MAX + 1)
    yield "a cancel of nothing", lambda leased_task: leased_task.harness.engine.cancel(Cancel()), ("task",)
    yield "a bot by the server's own name", greeting(bot="server"), ("dimensions.id", "bot")
    yield "a rerun of nothing", lambda leased_task: leased_task.harness.engine.rerun(Rerun(key="k")), ("task",)
    yield "reports as a list", polling(reports=[]), ("reports",)
    yield "a renewal that is none", polling(renewals=(None,)), ("renewals[0]",)
    yield "a renewal among reports", polling(reports=(Renewal(1, 1, 1),)), ("reports[0]",)
    yield "a report among renewals", polling(renewals=(Report(1, 1, 1, Signal.FAIL),)), ("renewals[0]",)
    yield "too many renewals", polling(renewals=many), ("renewals",)
    yield "too many reports", polling(reports=(Report(1, 1, 1, Signal.FAIL),) * (POLL_ITEMS_MAX + 1)), ("reports",)
    count = RESULTS_MAX // RESULT_MAX + 1
    heavy = (Report(1, 1, 1, Signal.FAIL, result=raw("x" * RESULT_MAX)),) * count
    yield "results that are too much together", polling(reports=heavy), ("reports",)
    yield "everything at once", polling(bot="", session=NUL, poll=BREAK, want=-1), ("bot", "session", "poll", "want")
    both = (said(Lease(1, 1, 1, 1)), said(Lease(1, 1, 1, 1), attempt=-1, exit_code="0"))  # type: ignore[arg-type]
    yield "the second report", polling(reports=both), ("reports[1].attempt", "reports[1].exit_code")
    for name in ("poll", "hello", "goodbye", "cancel", "rerun"):
        other = Goodbye("b1", "s1") if name != "goodbye" else Cancel(1)
        for value in (None, "a", other):
            ask = asking(lambda harness, name=name: getattr(harness.engine, name), value)  # type: ignore[misc]
            yield f"no {name}: {type(value).__name__}", ask, ("",)
    for text in (None, 7, "", NUL, LONE, "f" * 16):
        yield f"the story of {text!r}", asking(lambda harness: harness.engine.story, text), ("task_id",)
    yield "a repair by nobody", lambda leased_task: leased_task.harness.engine.repair([], NUL), ("actor",)


def odd_dimensions() -> Iterator[Case]:
    """What no bot can have."""
    keys = tuple((f"k{number:03}", ("v",)) for number in range(BOT_DIMENSIONS_MAX))
    values = tuple(f"v{number:03}" for number in range(BOT_DIMENSION_VALUES_MAX + 1))
    named: dict[str, tuple[Any, ...]] = {
        "none": ((), "dimensions.id", "dimensions"),
        "null": (None, "dimensions"),
        "an object": ({"id": "b1", "pool": "default"}, "dimensions"),
        "a list": ([*DIMENSIONS], "dimensions"),
        "a value that is no tuple": ((("id", "b1"), ("pool", "default")), "dimensions"),
        "a key that is a number": (((1, ("b1",)),), "dimensions"),
        "no pool": (canonical({"id": "b1"}), "dimensions"),
        "no id": (canonical({"pool": "default"}), "dimensions.id"),
        "another's id": (canonical({"id": "b2", "pool": "default"}), "dimensions.id"),
        "two ids": (canonical({"id": ["b1", "b2"], "pool": "default"}), "dimensions.id"),
        "an empty pool": ((("id", ("b1",)), ("pool", ())), "dimensions.pool"),
        "not sorted": (DIMENSIONS[::-1], "dimensions"),
        "a key twice": ((DIMENSIONS[0], *DIMENSIONS), "dimensions"),
        "a value twice": ((("id", ("b1",)), ("pool", ("p", "p"))), "dimensions"),
        "a NUL": ((("id", ("b1",)), ("pool", (NUL,))), "dimensions.pool[0]"),
        "a lone surrogate": ((("id", ("b1",)), ("pool", (LONE,))), "dimensions.pool[0]"),
        "alternatives": ((("id", ("b1",)), ("pool", ("a|b",))), "dimensions.pool[0]"),
        "a comparison": ((("gb", (">=16",)), *DIMENSIONS), "dimensions.gb[0]"),
        "an operator": ((("gb", ("<big",)), *DIMENSIONS), "dimensions.gb[0]"),
        "a key with a blank": ((("a b", ("c",)), *DIMENSIONS), 'dimensions["a b"]'),
        "too long a value": (
            (("id", ("b1",)), ("pool", ("x" * (DIMENSION_VALUE_MAX + 1),))),
            "dimensions.pool[0]",
        ),
        "too many keys": ((*DIMENSIONS, *keys), "dimensions"),
        "too many values": ((("id", ("b1",)), ("pool", values)), "dimensions.pool"),
    }
    for name, (value, *paths) in named.items():
        yield f"dimensions: {name}", greeting(dimensions=value), tuple(paths)


def paths_of(answer: object) -> tuple[str, ...]:
    assert isinstance(answer, Refusal), answer
    assert answer.code is Code.INVALID
    assert all(fault.message for fault in answer.faults)
    return tuple(fault.path for fault in answer.faults)


CASES = [*single_faults(), *odd_shapes(), *odd_dimensions()]


def test_every_fault_is_listed_with_its_path_and_nothing_is_stored(leased_task: LeasedTask) -> None:
    before = leased_task.harness.engine.commits
    shown = {name: paths_of(ask(leased_task)) for name, ask, _ in CASES}
    assert shown == {name: paths for name, _, paths in CASES}
    assert leased_task.harness.engine.commits == before  # there was not even a transaction


def test_a_fault_says_what_its_field_takes(leased_task: LeasedTask) -> None:
    answer = leased_task.harness.engine.poll(
        polled(bot=NUL, want=-1, reports=(said(leased_task.lease, signal=Signal.CANCEL),))
    )
    assert isinstance(answer, Refusal)
    assert answer.text == "the poll has 3 faults"
    assert [f"{fault.path} {fault.message}" for fault in answer.faults] == [
        "bot holds the hidden character U+0000; remove it",
        f"reports[0].signal must be a Signal: {ENDS_OF_ATTEMPTS}; got Signal.CANCEL",
        f"want must be an integer from 0 to {NUMBER_MAX}; got -1",
    ]


def test_a_bad_command_is_refused_at_once_and_its_neighbours_share_their_transaction(leased_task: LeasedTask) -> None:
    harness = leased_task.harness
    before = harness.engine.commits
    with harness.writer_blocked(), ThreadPoolExecutor(1) as other:
        good = harness.engine.ask(Poll, harness.poll_command(0, reports=(report(leased_task.lease),)))
        # They are answered while the writer is busy with something else.
        bad = [other.submit(ask, leased_task).result(WAIT_S) for _, ask, _ in CASES[::40]]
        late = harness.engine.ask(Poll, harness.poll_command(1))
    assert good.result(WAIT_S).reports == (Done(leased_task.lease.task, State.SUCCESSFUL),)
    assert [lease.task for lease in late.result(WAIT_S).leases] == [leased_task.labels["b"]]
    assert all(isinstance(answer, Refusal) for answer in bad)
    assert harness.engine.commits - before == 2  # the one that held them up, and theirs


def test_the_async_engine_lists_the_same_faults(leased_task: LeasedTask) -> None:
    async def ask() -> list[object]:
        face = AsyncEngine(leased_task.harness.engine)
        return [
            await face.poll(polled(want=-1)),
            await face.hello(Hello("", "s1", DIMENSIONS)),
            await face.goodbye(Goodbye("b1", NUL)),
            await face.cancel(Cancel()),
            await face.rerun(Rerun()),
            await face.submit(graph(z=task()), key=NUL),
            await face.extend("7", graph(z=task())),
            await face.story("7"),
        ]

    answers = asyncio.run(ask())
    paths = [[fault.path for fault in answer.faults] for answer in answers if isinstance(answer, Refusal)]
    assert paths == [["want"], ["bot"], ["session"], ["task"], ["task"], ["key"], ["graph_id"], ["task_id"]]


def test_unusual_but_valid_commands_are_accepted(leased_task: LeasedTask) -> None:
    engine, lease = leased_task.harness.engine, leased_task.lease
    unusual = "Größe 7, 東京"
    dimensions = canonical({"id": unusual, "pool": ["a", "b"], "os": [f"v{number}" for number in range(100)]})
    why = "it said:\n\tno disk"
    assert engine.hello(Hello(unusual, unusual, dimensions, SLOTS_MAX, why, why, True)) is None
    assert engine.poll(Poll(unusual, unusual, unusual, want=NUMBER_MAX)) == PollOutcome((), (), ())
    result = raw("ü" * RESULT_MAX)
    ended = said(lease, signal=Signal.FAIL, reason=Reason.TIMED_OUT, exit_code=EXIT_CODE_MIN, result=result)
    assert engine.poll(polled(reports=(ended,))) == PollOutcome((Done(lease.task, State.FAILED),), (), ())
    renewals = (Renewal(NUMBER_MAX, NUMBER_MAX, NUMBER_MAX),) * POLL_ITEMS_MAX
    answer = engine.poll(polled(renewals=renewals))
    assert isinstance(answer, PollOutcome)
    assert {one.code for one in answer.renewals if isinstance(one, Refusal)} == {Code.LEASE_LOST}
    assert isinstance(engine.cancel(Cancel(task=NUMBER_MAX, key=unusual, actor=unusual)), Refusal)
    assert engine.goodbye(Goodbye(unusual, unusual)) is None


def test_a_poll_without_an_id_runs_once_when_the_reply_to_its_commit_is_lost(harness: EngineHarness) -> None:
    harness.hello()
    labels = harness.submit(wide(2))
    harness.store.after = [StoreUnavailable("the line was cut")]
    answer = harness.engine.poll(Poll("b1", "s1", want=1))
    assert isinstance(answer, PollOutcome)
    assert [lease.attempt for lease in answer.leases] == [1]
    assert sorted(harness.states(labels).values()) == [State.RUNNING, State.WAITING]


# Anything at all.

ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 2),
    st.sampled_from([2**31, 2**32, 2**53, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64]),
    st.floats(),
    st.text(max_size=5),
    st.text(st.characters(), max_size=5),
    st.sampled_from(["", "b1", "s1", "k", NUL, LONE, BREAK, "x" * 300, "0" * 15 + "8", "7" * 15 + "8"]),
    st.binary(max_size=3),
    st.sampled_from([*Signal, *Reason]),
    st.lists(st.integers(), max_size=2),
    st.tuples(st.text(max_size=2)),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.sampled_from([DIMENSIONS, DIMENSIONS[::-1], canonical({"id": "b2", "pool": "p"}), object(), ...]),
    st.lists(st.tuples(st.text(max_size=2), st.lists(st.text(max_size=2), max_size=2).map(tuple))).map(tuple),
)


def some(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly what is right, so that faults are met one by one too."""
    return st.one_of(good, good, good, ODD)


NAMES = st.sampled_from(["b1", "b2", "s1", "s2", "k1", "k2"])
NUMBERS = st.sampled_from([0, 1, 2, NUMBER_MAX])
WORDS = st.sampled_from([Signal.SUCCEED, Signal.FAIL, Signal.LOSE, Signal.RETURN, Signal.DEADLINE])
ATTEMPTS = {"task": some(NUMBERS), "attempt": some(NUMBERS), "fence": some(NUMBERS)}
REPORTS = st.builds(
    Report,
    **ATTEMPTS,
    signal=some(WORDS),
    reason=some(st.none()),
    exit_code=some(st.none()),
    result=some(st.just(NOTHING)),
)
RENEWALS = st.builds(Renewal, **ATTEMPTS)
BEGUN = st.one_of(st.none(), st.lists(some(st.builds(Begun, **ATTEMPTS)), max_size=3).map(tuple))
POLLS = st.builds(
    Poll,
    bot=some(st.just("b1")),
    session=some(st.just("s1")),
    poll=some(NAMES),
    reports=some(st.lists(some(REPORTS), max_size=3).map(tuple)),
    renewals=some(st.lists(some(RENEWALS), max_size=3).map(tuple)),
    want=some(NUMBERS),
    begun=some(BEGUN),
)
HELLOS = st.builds(
    Hello,
    bot=some(st.just("b1")),
    session=some(NAMES),
    dimensions=some(st.just(DIMENSIONS)),
    slots=some(st.just(1)),
    quarantined=some(st.none()),
    maintenance=some(st.none()),
    draining=some(st.just(False)),
    begun=some(BEGUN),
)
PERSONS = {"actor": some(NAMES), "key": some(st.just(""))}
SUBJECTS = {"task": some(NUMBERS), "graph": some(NUMBERS)}
COMMANDS: dict[str, st.SearchStrategy[Any]] = {
    "poll": some(POLLS),
    "hello": some(HELLOS),
    "goodbye": some(st.builds(Goodbye, bot=some(NAMES), session=some(NAMES))),
    "cancel": some(st.builds(Cancel, **SUBJECTS, subtree=some(st.booleans()), **PERSONS)),
    "rerun": some(st.builds(Rerun, **SUBJECTS, **PERSONS)),
    "approve": some(st.builds(Approve, task=some(NUMBERS), approved=some(st.booleans()), comment=NAMES, **PERSONS)),
}
ANSWERS = (Refusal, PollOutcome, Done, BulkOutcome, Submitted, TaskHistory, type(None))


@pytest.fixture
def asked(harness: EngineHarness) -> EngineHarness:
    """An engine that many examples share: each of them may leave something there, and none may break it."""
    harness.hello()
    harness.submit(graph(a=task(), b=task("a")))
    return harness


@settings(max_examples=tries(100), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(choices=st.data(), name=st.sampled_from(sorted(COMMANDS)))
def test_any_command_is_answered(asked: EngineHarness, choices: st.DataObject, name: str) -> None:
    assert isinstance(getattr(asked.engine, name)(choices.draw(COMMANDS[name])), ANSWERS)


@settings(max_examples=tries(50), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(document=some(st.just(graph(z=task()))), graph_id=some(st.none()), key=some(NAMES), actor=some(NAMES))
@example(document={"tasks": {"a": {"task": {"payload": {"command": [LONE]}}}}}, graph_id=None, key="k", actor="ann")
def test_any_arguments_beside_any_document_are_answered(
    asked: EngineHarness, document: object, graph_id: Any, key: Any, actor: Any
) -> None:
    engine = asked.engine
    assert isinstance(engine.submit(document, graph_id=graph_id, key=key, actor=actor), ANSWERS)
    assert isinstance(engine.extend(graph_id, document, actor=actor), ANSWERS)
    assert isinstance(engine.story(graph_id), ANSWERS)


@settings(max_examples=tries(200))
@given(POLLS)
@example(Poll("b1", "s1", "p1", (Report(1, 1, 1, Signal.FAIL, Reason.SILENT, -9, raw("{}")),), (Renewal(1, 1, 1),), 1))
@example(Poll("b1", "s1", renewals=(Report(1, 1, 1, Signal.FAIL),)))  # type: ignore[arg-type]
def test_a_quick_check_never_passes_what_a_full_one_would_not(command: Poll) -> None:
    try:
        decoded = DECODER.decode(msgspec.json.encode(sent(command)))
    except (msgspec.ValidationError, UnicodeEncodeError):
        return  # the quick check sees only what was decoded
    assert validate.check_decoded(decoded) == validate.check(Poll, decoded)


DECODER = msgspec.json.Decoder(Poll, dec_hook=validate.task_key)


def sent(command: Poll) -> dict[str, Any]:
    """Write a poll as a bot does: with the ids of tasks as text."""
    said: dict[str, Any] = msgspec.to_builtins(command, enc_hook=repr)
    for parts in ("reports", "renewals", "outputs", "begun"):
        if isinstance(said.get(parts), list):
            for one in said[parts]:
                if isinstance(one, dict) and type(one.get("task")) is int:
                    one["task"] = "7b3f0cfa2d1e0008"
    return said


def test_all_faults_of_a_message_that_cannot_be_decoded_are_listed() -> None:
    report = {
        "task": "7",
        "attempt": 0,
        "signal": "cancel",
        "reason": "no_bot",
        "result": {"a": 1},
        "stats": {"cpu_s": 1},
    }
    poll = {"bot": "", "session": NUL, "reports": [report, 7], "outputs": [{"body": "!"}], "want": "x", "begun": {}}
    answer = validate.check_undecodable(Poll, poll)
    assert paths_of(answer) == (
        "bot", "session", "reports[0].task", "reports[0].attempt", "reports[0].fence", "reports[0].signal",
        "reports[0].reason", "reports[1]", "want", "outputs[0].task", "outputs[0].attempt", "outputs[0].fence",
        "outputs[0].start", "outputs[0].body", "begun",
    )  # fmt: skip
    assert isinstance(answer, Refusal)
    shown = {fault.path: fault.message for fault in answer.faults}
    assert shown["reports[0].signal"] == f"must be a Signal: {ENDS_OF_ATTEMPTS}; got Signal.CANCEL"
    assert shown["reports[0].fence"] == f"is missing; it must be an integer from 0 to {NUMBER_MAX}"


def test_every_field_of_every_command_has_a_reader() -> None:
    for kind in (*validate.COMMANDS, bot_protocol.Hello[TaskKey], bot_protocol.Trouble):
        assert set(validate.fields(kind)) == set(getattr(kind, "__origin__", kind).__struct_fields__)
