"""If the files of an open database are deleted or replaced, no transaction is acknowledged any more."""

from pathlib import Path
from shutil import copy

import pytest

from taskyard.store.queries import StoreUnavailable
from taskyard.store.sqlite import WATCHED, SqliteStore


@pytest.fixture
def path(sqlite_template: Path, tmp_path: Path) -> Path:
    (tmp_path / "some.db.lock").touch()
    return Path(copy(sqlite_template, tmp_path / "some.db"))


def write(store: SqliteStore) -> None:
    with store.write() as repo:
        repo.tokens.add_signing_key(b"k" * 32)


def read(store: SqliteStore) -> bytes | None:
    with store.read() as repo:
        return next(iter(repo.tokens.signing_keys()), None)


@pytest.mark.parametrize("end", WATCHED)
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_commit_to_a_deleted_or_replaced_file_fails(path: Path, end: str, how: str) -> None:
    store = SqliteStore(path)
    write(store)
    file, aside = Path(f"{path}{end}"), path.with_name("aside")
    file.rename(aside)
    if how == "replaced":
        copy(aside, file)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=rf"{file} was {how} while it was in use"):
            write(store)
        with pytest.raises(StoreUnavailable, match=rf"{file} was {how} while it was in use"):
            read(store)
    # It is not made again, as an empty one would be taken for the database.
    assert file.exists() == (how == "replaced")
    aside.rename(file)
    write(store)
    assert read(store) is not None
    store.close()


def test_a_new_reader_does_not_recreate_a_deleted_database(path: Path) -> None:
    store = SqliteStore(path)
    path.rename(path.with_name("aside"))
    with pytest.raises(StoreUnavailable, match=r"some\.db was deleted"):
        read(store)
    assert not path.exists()
    store.close()


def test_a_file_that_is_not_a_database_is_named_in_the_error(tmp_path: Path) -> None:
    file = tmp_path / "some.db"
    file.write_text("no database, but long enough to be looked at as one would be looked at" * 100)
    with pytest.raises(StoreUnavailable, match=rf"the database {file} cannot be opened: file is not a database"):
        SqliteStore(file)
