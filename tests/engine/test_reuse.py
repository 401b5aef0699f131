"""Reuse of results on a real engine: what secrets and files mean for it, and which rows a task without a run has."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from taskyard.core.matching import canonical
from taskyard.core.states import Signal
from taskyard.engine.engine import Engine
from taskyard.engine.keyring import add_key
from taskyard.lifecycle.commands import Cancel, Done, Hello, Lease, Output, Poll, Refusal, Report
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.submit import Submitted
from taskyard.store.repo.secrets import SecretListing
from taskyard.store.schema import metadata
from taskyard.wire.bot_protocol import Stats
from tests.engine.harness import fetch_raw, wait_until

VALUE = b"canary-77aa-value"
TREE, OTHER_TREE = "1" * 64, "2" * 64
BOT = Hello("b1", "s1", canonical({"id": "b1", "pool": "default"}), 64)
#: The tables with rows of tasks, and the column that names the task; a note for the next admission pass is none.
TABLES = {
    table.name: "task_id" if "task_id" in table.columns else "id"
    for table in metadata.tables.values()
    if ("task_id" in table.columns or table.name in {"task", "task_definition"}) and table.name != "admission_dirty"
}


@pytest.fixture
def engine(database_url: str, tmp_path: Path) -> Iterator[Engine]:
    """An engine with a key for secrets, and one bot."""
    keys = tmp_path / "keys"
    add_key(keys)
    with Engine.open(database_url, secrets_key_file=keys, name="one") as engine:
        assert engine.hello(BOT) is None
        yield engine
        assert engine.doctor() == []


def submit(engine: Engine, nodes: dict[str, Any], **said: Any) -> dict[str, int]:
    """Submit a graph; get the ids of its tasks by label."""
    answer = engine.submit({"tasks": nodes}, **said)
    assert isinstance(answer, Submitted), answer
    return dict(answer.names)


def same(*requires: str, payload: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A node of an idempotent task."""
    given = {"command": ["make"]} | (payload or {})
    return {"requires": list(requires), "task": {"idempotent": True, "payload": given, **fields}}


def states(engine: Engine, *tasks: int) -> list[str]:
    with engine.store.read() as repo:
        found = {one.id: f"{one.state} {one.reason}" for one in repo.tasks.read(tasks)}
    return [found[one] for one in tasks]


def claim(engine: Engine) -> dict[int, Lease]:
    """Let the bot take what there is."""
    answer = engine.poll(Poll("b1", "s1", want=64))
    assert isinstance(answer, PollOutcome), answer
    return {one.task: one for one in answer.leases}


def end(engine: Engine, lease: Lease, signal: Signal = Signal.SUCCEED, **more: Any) -> None:
    report = Report(lease.task, lease.attempt, lease.fence, signal, **more)
    answer = engine.poll(Poll("b1", "s1", reports=(report,)))
    assert isinstance(answer, PollOutcome), answer
    assert isinstance(answer.reports[0], Done), answer


def run(engine: Engine, *tasks: int) -> None:
    """Run just these tasks."""
    leases = claim(engine)
    assert set(leases) == set(tasks)
    for lease in leases.values():
        end(engine, lease)


def save(engine: Engine, value: bytes) -> None:
    answer = engine.secrets.save("default", "deploy", value, actor="ann", key="")
    assert isinstance(answer, SecretListing), answer


def rows_of(engine: Engine, task: int) -> dict[str, int]:
    """Count the rows of a task in every table that has any."""
    counts = {
        table: fetch_raw(engine.store.url, f"SELECT COUNT(*) FROM {table} WHERE {column} = {task}")[0][0]  # noqa: S608
        for table, column in TABLES.items()
    }
    return {table: count for table, count in counts.items() if count}


# Secrets.


def test_equal_secret_bytes_are_a_part_of_what_is_reused_and_are_dropped(engine: Engine) -> None:
    (first,) = submit(engine, {"a": same()}, secret_bytes=VALUE).values()
    (follower,) = submit(engine, {"a": same()}, secret_bytes=VALUE).values()
    (other,) = submit(engine, {"a": same()}, secret_bytes=VALUE + b".").values()
    (plain,) = submit(engine, {"a": same()}).values()
    followed = ["waiting in_line", "pending duplicate_of", "waiting in_line", "waiting in_line"]
    wait_until(lambda: states(engine, first, follower, other, plain) == followed)
    run(engine, first, other, plain)
    (late,) = submit(engine, {"a": same()}, secret_bytes=VALUE).values()
    assert states(engine, follower, late) == ["successful reused", "successful reused"]
    for task in (follower, late):
        assert "secret_bytes" not in rows_of(engine, task)


def test_a_follower_that_takes_the_lead_has_its_secret_bytes(engine: Engine) -> None:
    (first,) = submit(engine, {"a": same()}, secret_bytes=VALUE).values()
    (follower,) = submit(engine, {"a": same()}, secret_bytes=VALUE).values()
    engine.cancel(Cancel(task=first, actor="ann"))
    wait_until(lambda: states(engine, follower) == ["waiting in_line"])
    (lease,) = claim(engine).values()
    assert lease.task == follower
    given = engine.secrets.give(lease.task, lease.attempt, lease.fence, "it")
    assert not isinstance(given, Refusal)
    assert [one.body for one in given] == [VALUE]


def test_another_value_of_a_named_secret_is_another_task(engine: Engine) -> None:
    save(engine, VALUE)
    node = {"a": same(payload={"secrets": {"TOKEN": "deploy"}})}
    (first,) = submit(engine, node).values()
    wait_until(lambda: states(engine, first) == ["waiting in_line"])
    run(engine, first)
    (second,) = submit(engine, node).values()
    assert states(engine, second) == ["successful reused"]
    save(engine, VALUE + b".")
    (third,) = submit(engine, node).values()
    wait_until(lambda: states(engine, third) == ["waiting in_line"])
    (fourth,) = submit(engine, {"a": same(payload={"secrets": {"KEY": "deploy"}})}).values()
    wait_until(lambda: states(engine, fourth) == ["waiting in_line"])
    run(engine, third, fourth)


def test_what_ran_while_its_secret_was_changed_is_not_reused(engine: Engine) -> None:
    save(engine, VALUE)
    node = {"a": same(payload={"secrets": {"TOKEN": "deploy"}})}
    first, second = (submit(engine, node)["a"] for _ in range(2))
    wait_until(lambda: states(engine, first) == ["waiting in_line"])
    (lease,) = claim(engine).values()
    save(engine, VALUE + b".")
    end(engine, lease)
    wait_until(lambda: states(engine, second) == ["waiting in_line"])
    run(engine, second)


# Files.


def test_the_files_of_prerequisites_are_a_part_of_what_is_equal(engine: Engine) -> None:
    nodes = {
        "build": {"task": {"payload": {"command": ["build"]}}},
        "test": same("build", payload={"inputs": [{"from": "build"}]}),
        "lint": same("build"),
    }

    def built(tree: str) -> dict[str, int]:
        names = submit(engine, nodes)
        lease = claim(engine)[names["build"]]
        row = (lease.task, lease.attempt, "default", tree, 1, 1)
        engine.transact(lambda transaction: transaction.repo.files.set_outputs([row]))
        end(engine, lease)
        return names

    first = built(TREE)
    run(engine, first["test"], first["lint"])
    equal, other = built(TREE), built(OTHER_TREE)
    assert states(engine, equal["test"], equal["lint"]) == ["successful reused"] * 2
    assert states(engine, other["test"], other["lint"]) == ["waiting in_line", "successful reused"]


def test_the_tree_that_a_task_names_is_a_part_of_what_is_equal(engine: Engine) -> None:
    def naming(tree: str) -> int:
        return submit(engine, {"a": same(payload={"inputs": [{"tree": tree}]})})["a"]

    first = naming(TREE)
    run(engine, first)
    assert states(engine, naming(TREE), naming(OTHER_TREE)) == ["successful reused", "waiting in_line"]


# The rows of a task that did not run.


def test_a_task_that_ran_has_rows_that_one_without_a_run_has_not(engine: Engine) -> None:
    """Text 003: these may have no to-run entry, attempt, output, stats or secret."""
    node = {"a": same(mutexes=[{"key": "k"}], tags=["x:y"])}
    (ran,) = submit(engine, node, secret_bytes=VALUE).values()
    (follower,) = submit(engine, node, secret_bytes=VALUE).values()
    wait_until(lambda: states(engine, ran) == ["waiting in_line"])
    (lease,) = claim(engine).values()
    piece = Output(lease.task, lease.attempt, lease.fence, 0, b"hello")
    engine.poll(Poll("b1", "s1", outputs=(piece,)))
    engine.transact(lambda transaction: transaction.repo.output.set_progress([(ran, 1, 5, "half", None)]))
    end(engine, lease, result=msgspec.Raw(b"7"), stats=Stats(ran_ms=5))
    (late,) = submit(engine, node, secret_bytes=VALUE).values()
    assert states(engine, ran, follower, late) == ["successful done", "successful reused", "successful reused"]
    assert rows_of(engine, ran).keys() >= {
        "attempt", "output_chunk", "attempt_stats", "progress", "secret_bytes", "result",
    }  # fmt: skip
    # What is left is the request, which names its secret, its summary, and where the result comes from.
    request = {"task": 1, "task_definition": 1, "task_secret": 1}
    for task in (follower, late):
        assert rows_of(engine, task) == {**request, "task_mutex": 1, "task_reuse": 1, "result": 1}
    (unserved,) = submit(
        engine,
        {"a": same(slices=[{"dimensions": {"gpu": "none"}, "wait_for_capacity": False}])},
        secret_bytes=VALUE,
    ).values()
    assert states(engine, unserved) == ["error no_bot"]
    assert rows_of(engine, unserved) == request


def test_no_task_without_a_run_was_ever_in_a_queue(engine: Engine) -> None:
    first, follower = (submit(engine, {"a": same()})["a"] for _ in range(2))
    run(engine, first)
    late = submit(engine, {"a": same()})["a"]
    slices = [{"dimensions": {"gpu": "none"}, "wait_for_capacity": False}]
    unserved = submit(engine, {"a": same(slices=slices)})["a"]
    with engine.store.read() as repo:
        passed = {task: [one.target for one in repo.events.of(task, 0, 99)] for task in (follower, late, unserved)}
    assert passed == {
        follower: ["pending", "successful"], late: ["pending", "successful"], unserved: ["pending", "error"],
    }  # fmt: skip
