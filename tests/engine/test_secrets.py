"""Secrets of one database: new versions, rotations that go on, lost keys, several servers, and tasks that wait."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from taskyard.core.ids import Key, key_of, text_of
from taskyard.core.matching import canonical
from taskyard.core.states import Signal, State
from taskyard.engine import failpoints
from taskyard.engine.engine import Engine
from taskyard.engine.keyring import add_key
from taskyard.engine.secrets import Rotation
from taskyard.lifecycle import secrets as steps
from taskyard.lifecycle.commands import Code, Hello, Lease, Poll, Refusal, Report, Rerun
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.submit import Submitted
from taskyard.store.repo.secrets import SecretListing
from taskyard.wire.bot_protocol import AttemptSecret
from tests.engine.harness import execute_raw, wait_until
from tests.fork_server import KILLED, ForkServer

VALUE = b"canary-5e3c-value"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    add_key(file)
    return file


@contextmanager
def opened(url: str, keys: Path | None) -> Iterator[Engine]:
    with Engine.open(url, secrets_key_file=keys, name="one") as engine:
        yield engine


def save(engine: Engine, name: str = "deploy", value: bytes = VALUE, key: str = "") -> SecretListing:
    answer = engine.secrets.save("default", name, value, actor="ann", key=key)
    assert isinstance(answer, SecretListing), answer
    return answer


def submit(engine: Engine, task: dict[str, Any], **said: Any) -> int:
    answer = engine.submit({"tasks": {"a": {"task": task}}}, **said)
    assert isinstance(answer, Submitted), answer
    return answer.names["a"]


def named(**secrets: Any) -> dict[str, Any]:
    return {"payload": {"command": ["true"], "secrets": secrets}}


def state(engine: Engine, task: int) -> tuple[State, str]:
    """The state of a task, and why admission holds it."""
    with engine.store.read() as repo:
        hold = repo.admission.holds_of([task]).get(task)
        return repo.tasks.read([task])[0].state, "" if hold is None else str(hold.reason)


def claim(engine: Engine, task: int) -> Lease:
    """Have a bot take a task as soon as it is there."""
    engine.hello(Hello("b1", "s1", canonical({"id": "b1", "pool": "default"}), 8))
    found: list[Lease] = []

    def take() -> bool:
        answer = engine.poll(Poll("b1", "s1", want=1))
        assert isinstance(answer, PollOutcome), answer
        found.extend(answer.leases)
        return any(one.task == task for one in found)

    wait_until(take)
    return next(one for one in found if one.task == task)


def give(engine: Engine, lease: Lease) -> list[AttemptSecret] | Refusal:
    return engine.secrets.give(lease.task, lease.attempt, lease.fence, "it")


def values(engine: Engine, lease: Lease) -> dict[str, bytes]:
    found = give(engine, lease)
    assert not isinstance(found, Refusal), found
    return {one.variable: one.body for one in found}


def test_the_same_value_is_an_echo_and_a_key_is_for_one_value(database_url: str, keys: Path) -> None:
    with opened(database_url, keys) as engine:
        first = save(engine, key="k1")
        assert save(engine, key="k1") == save(engine) == first
        assert save(engine, value=VALUE + b"2").version == 2
        assert save(engine, key="k1").version == 2, "a repeat changes nothing, also after a newer value"
        refused = engine.secrets.save("default", "deploy", VALUE + b"4", actor="ann", key="k1")
        assert isinstance(refused, Refusal)
        assert refused.code is Code.CONFLICT


def test_a_rotation_that_was_cut_off_goes_on(database_url: str, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskyard.engine.secrets.REWRAPPED_MAX", 2)
    with opened(database_url, keys) as engine:
        for number in range(5):
            save(engine, f"s{number}", VALUE + b"%d" % number)
        task = submit(engine, {"payload": {"command": ["true"]}}, secret_bytes=VALUE)
        old = engine.secrets.keyring.first()
        new = add_key(keys)
        assert save(engine, "before").key_id == old, "nothing uses a new key before the rotation"
        page, real = [0], steps.rewrap

        def cut(*arguments: Any) -> None:
            page[0] += 1
            if page[0] == 2:
                raise failpoints.Failure("cut off")
            real(*arguments)

        monkeypatch.setattr(steps, "rewrap", cut)
        with pytest.raises(Exception, match=r"cut off|failed"):
            engine.secrets.rotate(actor="ann")
        monkeypatch.setattr(steps, "rewrap", real)
        with engine.store.read() as repo:
            counts = repo.secrets.count_by_key()
        assert set(counts) == {old, new}, "it stopped in the middle"
        assert save(engine, "between").key_id == new
    with opened(database_url, keys) as engine:
        done = engine.secrets.rotate(actor="ann")
        assert isinstance(done, Rotation)
        assert (done.key_id, done.rewrapped, done.unopened, done.unused) == (new, counts[old], 0, (old,))
        again = engine.secrets.rotate(actor="ann")
        assert isinstance(again, Rotation)
        assert again.rewrapped == 0
        keys.write_text("".join(line for line in keys.read_text().splitlines(keepends=True)[:-1]))
        assert engine.secrets.keyring.ids() == {new}, "the old key is not needed any more"
        lease = claim(engine, task)
        assert values(engine, lease) == {"TASKYARD_SECRET_BYTES": VALUE}
        assert save(engine, "s3", VALUE + b"3").version == 1, "keyed hashes are as before"


def rotate_in_pages(url: str, keys: str) -> None:
    with pytest.MonkeyPatch.context() as patch, opened(url, Path(keys)) as engine:
        patch.setattr("taskyard.engine.secrets.REWRAPPED_MAX", 2)
        engine.secrets.rotate(actor="ann")


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_process_that_is_killed_while_it_rotates_loses_no_secret(database_url: str, keys: Path, side: str) -> None:
    expected = {f"S{number}": VALUE + b"%d" % number for number in range(7)}
    with opened(database_url, keys) as engine:
        for name, body in expected.items():
            save(engine, name, body)
        task = submit(engine, named(**{name: name for name in expected}), secret_bytes=VALUE)
        lease = claim(engine, task)
    new = add_key(keys)
    kills = 0
    with ForkServer(rotate_in_pages) as process:
        for count in (1, 2, 3, 4, 2, 5, 1_000):
            ended = process(f"other.{side}:exit@{count}", database_url, keys)
            kills += ended == KILLED
            with opened(database_url, keys) as engine:
                assert values(engine, lease) == expected | {"TASKYARD_SECRET_BYTES": VALUE}
            if ended == 0:
                break
    assert kills >= 3
    with opened(database_url, keys) as engine, engine.store.read() as repo:
        assert set(repo.secrets.count_by_key()) == {new}


def test_a_lost_key_lets_tasks_wait_until_it_is_back(database_url: str, keys: Path) -> None:
    with opened(database_url, keys) as engine:
        save(engine)
        waits = submit(engine, named(TOKEN="deploy"))  # noqa: S106
        wait_until(lambda: state(engine, waits)[0] is State.WAITING)
    hidden = keys.rename(keys.with_name("hidden"))
    with opened(database_url, keys) as engine:
        assert "cannot be opened" in str(engine.secrets.trouble())
        held = submit(engine, named(TOKEN="deploy"))  # noqa: S106
        wait_until(lambda: state(engine, held) == (State.PENDING, "no_secret_key"))
        for refused in (engine.secrets.save("default", "x", VALUE, actor="ann"), engine.secrets.of_request(VALUE)):
            assert isinstance(refused, Refusal)
            assert refused.code is Code.NO_SECRET_KEY
        lease = claim(engine, waits)  # it was let in before the key was lost
        not_given = give(engine, lease)
        assert isinstance(not_given, Refusal)
        assert not_given.code is Code.NO_SECRET_KEY
        back = Report(lease.task, lease.attempt, lease.fence, Signal.RETURN)
        engine.poll(Poll("b1", "s1", reports=(back,)))
        wait_until(lambda: state(engine, waits) == (State.PENDING, "no_secret_key"))
        claim(engine, submit(engine, {"payload": {"command": ["true"]}}))  # all other work goes on
        hidden.rename(keys)
        assert isinstance(engine.secrets.rotate(actor="ann"), Rotation)
        for task in (waits, held):  # in order: a bot that takes the other first keeps it
            assert values(engine, claim(engine, task)) == {"TOKEN": VALUE}
        assert engine.secrets.trouble() is None


def test_a_key_that_is_lost_for_good_is_given_up_and_secrets_are_set_anew(database_url: str, keys: Path) -> None:
    with opened(database_url, keys) as engine:
        save(engine)
        keys.unlink()
        new = add_key(keys)
        assert isinstance(engine.secrets.rotate(actor="ann"), Refusal)
        done = engine.secrets.rotate(actor="ann", abandon=True)
        assert isinstance(done, Rotation)
        assert (done.key_id, done.unopened) == (new, 1)
        task = submit(engine, named(TOKEN="deploy"))  # noqa: S106
        wait_until(lambda: state(engine, task) == (State.PENDING, "no_secret_key"))
        assert (save(engine).version, save(engine).key_id) == (2, new)
        assert values(engine, claim(engine, task)) == {"TOKEN": VALUE}


def test_a_task_waits_for_a_secret_that_was_deleted(database_url: str, keys: Path) -> None:
    with opened(database_url, keys) as engine:
        save(engine)
        begins = {"not_before": "1h"}
        early = submit(engine, named(TOKEN="deploy"))  # noqa: S106
        late = submit(engine, {**named(TOKEN="deploy"), **begins})  # noqa: S106
        wait_until(lambda: state(engine, early)[0] is State.WAITING)
        assert engine.secrets.delete("default", "deploy", actor="ann") == 2
        lease = claim(engine, early)
        refused = give(engine, lease)
        assert isinstance(refused, Refusal)
        assert (refused.code, refused.text) == (Code.NO_SECRET, "there is no secret default/deploy")
        engine.poll(Poll("b1", "s1", reports=(Report(lease.task, lease.attempt, lease.fence, Signal.RETURN),)))
        wait_until(lambda: state(engine, early) == (State.PENDING, "no_secret"))
        assert state(engine, late)[0] is State.PENDING
        save(engine, value=VALUE + b" anew")
        assert values(engine, claim(engine, early)) == {"TOKEN": VALUE + b" anew"}


def test_rows_that_are_exchanged_in_the_database_cannot_be_opened(database_url: str, keys: Path) -> None:
    with opened(database_url, keys) as engine:
        save(engine, "mine", b"my own value")
        save(engine, "theirs", VALUE)
        task = submit(engine, named(TOKEN="mine"))  # noqa: S106
        lease = claim(engine, task)
        execute_raw(
            database_url,
            "UPDATE secret SET (key_id, wrapped_key, body) = (SELECT o.key_id, o.wrapped_key, o.body FROM secret o "
            "WHERE o.name = 'theirs') WHERE name = 'mine'",
        )
        refused = give(engine, lease)
        assert isinstance(refused, Refusal)
        assert "its row in the database was changed" in refused.text


def test_secret_bytes_go_when_no_bot_can_run_the_task_and_a_rerun_says_so(database_url: str, keys: Path) -> None:
    way = {"payload": {"command": ["true"]}, "dimensions": {"gpu": "none"}, "wait_for_capacity": False}
    with opened(database_url, keys) as engine:
        task = submit(engine, {"slices": [way, way]}, secret_bytes=VALUE)
        assert state(engine, task)[0] is State.ERROR
        with engine.store.read() as repo:
            assert repo.secrets.count_by_key() == {}
            assert repo.tasks.read([task])[0].reason == "no_bot"
        engine.hello(Hello("b2", "s1", canonical({"id": "b2", "pool": "default", "gpu": "none"}), 1))
        assert not isinstance(engine.rerun(Rerun(task=task)), Refusal)
        wait_until(lambda: state(engine, task) == (State.PENDING, "no_secret"))


def test_a_graph_that_runs_again_has_the_secret_bytes_of_its_request(database_url: str, keys: Path) -> None:
    with opened(database_url, keys) as engine:
        task = submit(engine, {"payload": {"command": ["true"]}}, secret_bytes=VALUE)
        lease = claim(engine, task)
        engine.poll(Poll("b1", "s1", reports=(Report(lease.task, lease.attempt, lease.fence, Signal.SUCCEED),)))
        with engine.store.read() as repo:
            graph = repo.tasks.read([task])[0].graph
        made = engine.renew(text_of(Key(graph)), ("a",))
        assert isinstance(made, Submitted), made
        assert values(engine, claim(engine, made.names["a"])) == {"TASKYARD_SECRET_BYTES": VALUE}


def test_secret_bytes_are_a_part_of_what_a_key_or_an_id_stands_for(database_url: str, keys: Path) -> None:
    document = {"tasks": {"a": {"task": {"payload": {"command": ["true"]}}}}}
    with opened(database_url, keys) as engine:
        ask: Callable[..., Any] = lambda value, **said: engine.submit(document, secret_bytes=value, **said)  # noqa: E731
        first = ask(VALUE, key="k")
        assert ask(VALUE, key="k").graph == first.graph
        for other in (VALUE + b"2", None):
            refused = ask(other, key="k")
            assert isinstance(refused, Refusal)
            assert refused.code is Code.CONFLICT
        with engine.store.read() as repo:
            first_digest = repo.secrets.digests([first.names["a"]])
        second = ask(VALUE)
        with engine.store.read() as repo:
            again = repo.secrets.digests([second.names["a"]])
        assert list(first_digest.values()) == list(again.values()), "equal values have equal keyed hashes"
        assert key_of(text_of(Key(first.graph))) == first.graph


def test_servers_of_one_database_share_a_key_file(postgres_url: str, keys: Path, tmp_path: Path) -> None:
    with opened(postgres_url, keys) as one, Engine.open(postgres_url, secrets_key_file=keys, name="two") as two:
        save(one)
        assert save(two).version == 1
        task = submit(two, named(TOKEN="deploy"))  # noqa: S106
        assert values(one, claim(two, task)) == {"TOKEN": VALUE}
    other = tmp_path / "other"
    add_key(other)
    with opened(postgres_url, other) as engine:
        refused = engine.secrets.save("default", "x", VALUE, actor="ann")
        assert isinstance(refused, Refusal)
        assert f"is not in {other}" in refused.text
    with opened(postgres_url, None) as engine:
        assert "--secrets-key-file" in str(engine.secrets.trouble())
