"""Secrets, and which tasks name them, on both databases."""

from collections.abc import Iterator

import pytest

from taskyard.core.states import ENDED, State
from taskyard.store.connection import Repo, Store, open_store
from taskyard.store.repo.admission import NAMES_SECRETS
from taskyard.store.repo.secrets import (
    FIRST,
    LackedSecret,
    Sealed,
    SecretListing,
    SecretRow,
    TaskSecret,
    WrappedBytesKey,
    WrappedKey,
)
from tests.store.rows import LATER, NOW, add_graph, add_tasks

BODY = Sealed("k1", b"\x00wrapped", b"body\xff")


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = open_store(database_url)
    yield store
    store.close()


def row(pool: str, name: str, version: int = 1, sealed: Sealed = BODY, at: int = NOW) -> SecretRow:
    return SecretRow(pool, name, version, f"d{version}", sealed, NOW, at, "ann")  # type: ignore[arg-type]


def add_secrets(repo: Repo) -> None:
    for pool, name in (("lab", "deploy"), ("lab", "other"), ("ci", "deploy")):
        repo.secrets.save(row(pool, name))


def test_a_secret_is_stored_replaced_and_deleted(store: Store) -> None:
    with store.write() as repo:
        add_secrets(repo)
        new = Sealed("k2", b"w", b"b")
        repo.secrets.save(row("lab", "deploy", 2, new, LATER))
    with store.read() as repo:
        assert repo.secrets.read("lab", "deploy") == SecretRow("lab", "deploy", 2, "d2", new, NOW, LATER, "ann")
        assert repo.secrets.read("lab", "none") is None
        assert repo.secrets.exist({("lab", "other"), ("ci", "other"), ("ci", "deploy")}) == {
            ("lab", "other"),
            ("ci", "deploy"),
        }
        assert repo.secrets.exist(set()) == set()
        assert repo.secrets.count_by_key() == {"k1": 2, "k2": 1}
    with store.write() as repo:
        assert repo.secrets.delete("lab", "deploy")
        assert not repo.secrets.delete("lab", "deploy")


def test_secrets_are_listed_in_pages_without_their_values(store: Store) -> None:
    with store.write() as repo:
        add_secrets(repo)
    with store.read() as repo:
        first = repo.secrets.page(None, FIRST, 2)
        assert [(one.pool, one.name) for one in first] == [("ci", "deploy"), ("lab", "deploy")]
        assert repo.secrets.page(None, ("lab", "deploy"), 2) == [
            SecretListing("lab", "other", 1, "k1", NOW, NOW, "ann")
        ]
        assert [one.name for one in repo.secrets.page({"lab"}, FIRST, 9)] == ["deploy", "other"]
        assert repo.secrets.page(set(), FIRST, 9) == []


def test_the_key_of_hashes_is_stored_once_and_replaced_only_if_it_is_the_expected_one(store: Store) -> None:
    with store.write() as repo:
        assert repo.secrets.hash_key() is None
        repo.secrets.add_hash_key("k1", b"one")
        repo.secrets.add_hash_key("k2", b"two")
        assert repo.secrets.hash_key() == ("k1", b"one")
        repo.secrets.replace_hash_key("k2", "k3", b"three")
        assert repo.secrets.hash_key() == ("k1", b"one")
        repo.secrets.replace_hash_key("k1", "k3", b"three")
        assert repo.secrets.hash_key() == ("k3", b"three")


def test_keys_are_encrypted_anew_unless_the_secret_has_a_new_value(store: Store) -> None:
    with store.write() as repo:
        add_secrets(repo)
        add_graph(repo)
        add_tasks(repo, 1)
        repo.secrets.add_bytes([(1, 1, "d", "k1", b"w", b"b")])
        assert repo.secrets.of_keys({"k1"}, 1) == [WrappedKey("ci", "deploy", 1, "k1", BODY.wrapped_key)]
        assert repo.secrets.bytes_of_keys({"k1"}, 9) == [WrappedBytesKey(1, 1, "k1", b"w")]
        assert repo.secrets.of_keys(set(), 9) == []
        assert repo.secrets.bytes_of_keys({"k2"}, 9) == []
        repo.secrets.rewrap([("ci", "deploy", 1, "k2", b"x"), ("lab", "deploy", 7, "k2", b"x")])
        repo.secrets.rewrap_bytes([(1, "k2", b"y")])
        assert repo.secrets.of_keys({"k2"}, 9) == [WrappedKey("ci", "deploy", 1, "k2", b"x")]
        assert repo.secrets.bytes_of_keys({"k2"}, 9) == [WrappedBytesKey(1, 1, "k2", b"y")]


def test_a_task_has_what_its_slice_names(store: Store) -> None:
    with store.write() as repo:
        add_secrets(repo)
        add_graph(repo)
        add_tasks(repo, 1, 2, is_constrained=NAMES_SECRETS)
        repo.secrets.add_uses(
            [
                (1, 0, "TASKYARD_SECRET_BYTES", "", "", 1),
                (1, 0, "TOKEN", "lab", "deploy", 0),
                (1, 1, "TOKEN", "lab", "gone", 1),
                (2, 0, "TOKEN", "lab", "deploy", 0),
            ]
        )
        repo.secrets.add_bytes([(1, 1, "db", "k2", b"w", b"b")])
    with store.read() as repo:
        assert repo.secrets.of_task(1, 0) == [
            TaskSecret("TASKYARD_SECRET_BYTES", True, "", "", 0, Sealed("k2", b"w", b"b"), 1),
            TaskSecret("TOKEN", False, "lab", "deploy", 1, BODY),
        ]
        assert repo.secrets.of_task(1, 1) == [TaskSecret("TOKEN", True, "lab", "gone")]
        assert not repo.secrets.lacks_any(1, 0)
        assert repo.secrets.lacks_any(1, 1)
        assert repo.secrets.lacking([1, 2], {"k1", "k2"}) == {}
        assert repo.secrets.lacking([1, 2], {"k1"}) == {1: LackedSecret(1, "", "", "k2")}
        assert repo.secrets.lacking([2], ()) == {2: LackedSecret(2, "lab", "deploy", "k1")}
        assert repo.secrets.lacking([], ()) == {}
        assert repo.secrets.digests([1, 2]) == {
            (1, 0): {"TASKYARD_SECRET_BYTES": "file   db", "TOKEN": "lab deploy d1"},
            (1, 1): {"TOKEN": ""},
            (2, 0): {"TOKEN": "lab deploy d1"},
        }
        assert repo.secrets.count_tasks("lab", "deploy", frozenset(State) - ENDED) == 2


def test_a_task_without_its_secret_lacks_it(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2, 3, is_constrained=NAMES_SECRETS)
        repo.secrets.add_uses([(1, 0, "TOKEN", "lab", "gone", 0), (2, 0, "TASKYARD_SECRET_BYTES", "", "", 1)])
        repo.secrets.add_bytes([(2, 2, "d", "k1", b"w", b"b")])
        repo.secrets.copy_bytes([(3, 2)])
        assert repo.secrets.bytes_of_keys({"k1"}, 9)[1] == WrappedBytesKey(3, 2, "k1", b"w")
        repo.secrets.drop_bytes([2])
        repo.secrets.copy_bytes([(1, 2)])
        assert repo.secrets.lacking([1, 2], {"k1"}) == {
            1: LackedSecret(1, "lab", "gone", None),
            2: LackedSecret(2, "", "", None),
        }
        assert [one.names_secrets for one in repo.admission.contenders_among([1, 2, 3])] == []
        repo.tasks.delete([1, 2, 3])
        assert repo.secrets.of_task(1, 0) == []
        assert repo.secrets.bytes_of_keys({"k1"}, 9) == []
