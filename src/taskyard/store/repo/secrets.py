"""Repository of secrets: encrypted values, and which tasks name them. Nothing here can decrypt one."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from taskyard.core.states import Millis
from taskyard.core.structs import value
from taskyard.store.queries import Row, Session

#: Before the first place of a page.
FIRST: Final = ("", "")
#: Stands for the keyed hash of a secret that does not exist.
MISSING: Final = ""


@value
class Sealed:
    """An encrypted value: the key that encrypts its own key, that key, and the value encrypted with it."""

    key_id: str
    wrapped_key: bytes
    body: bytes


@value
class SecretRow:
    """A named secret."""

    pool: str
    name: str
    version: int
    digest: str
    sealed: Sealed
    created_ms: Millis
    changed_ms: Millis
    changed_by: str


@value
class SecretListing:
    """A named secret without its value."""

    pool: str
    name: str
    version: int
    key_id: str
    created_ms: Millis
    changed_ms: Millis
    changed_by: str


@value
class WrappedKey:
    """The encrypted key of a secret: whose it is, and in which version."""

    pool: str
    name: str
    version: int
    key_id: str
    wrapped_key: bytes


@value
class WrappedBytesKey:
    """The encrypted key of secret bytes: the task, and the one for which they were first stored."""

    task: int
    first: int
    key_id: str
    wrapped_key: bytes


@value
class TaskSecret:
    """A secret that a slice of a task names. Without a name it is the secret bytes of the request."""

    variable: str
    is_file: bool
    pool: str
    name: str
    version: int = 0
    sealed: Sealed | None = None  # None: it does not exist
    first: int = 0  # the task for which secret bytes were first stored


@value
class LackedSecret:
    """A secret that cannot be given to a task."""

    task: int
    pool: str
    name: str
    key_id: str | None  # the key that would open it; None: the secret does not exist


class SecretRepo:
    """The tables `secret`, `secret_bytes`, `task_secret` and `hash_key`."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    # Named secrets.

    def read(self, pool: str, name: str) -> SecretRow | None:
        """Read and lock a secret."""
        found = self._session.fetch("select_secret", pool, name)
        if not found:
            return None
        pool, name, version, digest, key_id, wrapped_key, body, created_ms, changed_ms, changed_by = found[0]
        sealed = Sealed(key_id, wrapped_key, body)
        return SecretRow(pool, name, version, digest, sealed, created_ms, changed_ms, changed_by)

    def exist(self, wanted: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return which of some secrets exist, by pool and name."""
        pools, names = {pool for pool, _ in wanted}, {name for _, name in wanted}
        found = self._session.fetch("select_secret_names", sorted(pools), sorted(names)) if wanted else []
        return {(row[0], row[1]) for row in found} & set(wanted)

    def page(self, pools: Collection[str] | None, after: tuple[str, str], count: int) -> list[SecretListing]:
        """Return secrets after a pool and a name, of some pools or, with None, of all."""
        if pools is None:
            found = self._session.fetch("select_secret_page", *after, count)
        else:
            found = self._session.fetch("select_secret_page_of_pools", sorted(pools), *after, count)
        return [SecretListing(*row) for row in found]

    def save(self, row: SecretRow) -> None:
        """Store a secret, or replace its value."""
        sealed = (row.sealed.key_id, row.sealed.wrapped_key, row.sealed.body)
        self._session.execute(
            "upsert_secret", row.pool, row.name, row.version, row.digest, *sealed, row.changed_ms, row.changed_by
        )

    def delete(self, pool: str, name: str) -> bool:
        """Delete a secret; return False if there was none."""
        return self._session.execute("delete_secret", pool, name) == 1

    # Keys.

    def hash_key(self) -> tuple[str, bytes] | None:
        """Return the encrypted key of the keyed hashes, after the id of the key that encrypts it."""
        found = self._session.fetch("select_hash_key")
        return (found[0][0], found[0][1]) if found else None

    def add_hash_key(self, key_id: str, wrapped_key: bytes) -> None:
        """Store the key of the keyed hashes, unless there is one."""
        self._session.execute("insert_hash_key", key_id, wrapped_key)

    def replace_hash_key(self, old: str, key_id: str, wrapped_key: bytes) -> None:
        """Store the key of the keyed hashes as another key encrypts it, or a new one."""
        self._session.execute("replace_hash_key", old, key_id, wrapped_key)

    def of_keys(self, keys: Collection[str], count: int) -> list[WrappedKey]:
        """Return some secrets that these keys encrypt."""
        found = self._session.fetch("select_secrets_of_keys", sorted(keys), count) if keys else []
        return [WrappedKey(*row) for row in found]

    def bytes_of_keys(self, keys: Collection[str], count: int) -> list[WrappedBytesKey]:
        """Return some secret bytes that these keys encrypt."""
        found = self._session.fetch("select_secret_bytes_of_keys", sorted(keys), count) if keys else []
        return [WrappedBytesKey(*row) for row in found]

    def rewrap(self, rows: Sequence[Row]) -> None:
        """Store the keys of secrets as another key encrypts them: pool, name, version, key, encrypted key."""
        self._session.execute_many("rewrap_secrets", rows)

    def rewrap_bytes(self, rows: Sequence[Row]) -> None:
        """Store the keys of secret bytes as another key encrypts them: task, key, encrypted key."""
        self._session.execute_many("rewrap_secret_bytes", rows)

    def count_by_key(self) -> dict[str, int]:
        """Return how many secrets and secret bytes each key encrypts."""
        return {row[0]: row[1] for row in self._session.fetch("count_secrets_by_key")}

    # Tasks.

    def add_uses(self, rows: Sequence[Row]) -> None:
        """Insert which secrets tasks name: task, slice, variable, pool, name, whether it is a file."""
        self._session.execute_many("insert_task_secrets", rows)

    def add_bytes(self, rows: Sequence[Row]) -> None:
        """Insert secret bytes: task, the task for which they were first stored, digest, key, encrypted key, body."""
        self._session.execute_many("insert_secret_bytes", rows)

    def copy_bytes(self, rows: Iterable[tuple[int, int]]) -> None:
        """Give tasks the secret bytes of others: task, source."""
        for task, source in rows:
            self._session.execute("copy_secret_bytes", task, source)

    def drop_bytes(self, tasks: Collection[int]) -> None:
        """Delete the secret bytes of tasks that will not run."""
        if tasks:
            self._session.execute("delete_secret_bytes", tasks)

    def of_task(self, task: int, slice_index: int) -> list[TaskSecret]:
        """Return the secrets that a slice of a task names, in the order of their variables."""
        return [_task_secret(row) for row in self._session.fetch("select_sealed_of_task", task, slice_index)]

    def lacking(self, tasks: Collection[int], keys: Collection[str]) -> dict[int, LackedSecret]:
        """Return for each task the first secret of its slice that does not exist or that these keys cannot open."""
        found: dict[int, LackedSecret] = {}
        for row in self._session.fetch("select_lacking_secrets", tasks, sorted(keys)) if tasks else ():
            found.setdefault(row[0], LackedSecret(*row))
        return found

    def lacks_any(self, task: int, slice_index: int) -> bool:
        """Tell whether a secret that a slice of a task names does not exist."""
        return any(one.sealed is None for one in self.of_task(task, slice_index))

    def digests(self, tasks: Collection[int]) -> dict[tuple[int, int], dict[str, str]]:
        """Return the keyed hashes of the secrets that tasks name: by task and slice, then by variable.

        The text of a variable says also whether it names a file. `MISSING` stands for a secret that does not exist.
        """
        found: dict[tuple[int, int], dict[str, str]] = defaultdict(dict)
        for task, index, variable, is_file, pool, name, digest in (
            self._session.fetch("select_secret_digests", tasks) if tasks else ()
        ):
            known = MISSING if digest is None else f"{'file ' if is_file else ''}{pool} {name} {digest}"
            found[task, index][variable] = known
        return dict(found)

    def count_tasks(self, pool: str, name: str, states: Iterable[str]) -> int:
        """Return how many tasks in some states name a secret."""
        return int(self._session.fetch("count_tasks_naming_secret", pool, name, [str(one) for one in states])[0][0])


def _task_secret(row: Row) -> TaskSecret:
    variable, is_file, pool, name, version, key_id, wrapped_key, body, first = row
    sealed = None if key_id is None else Sealed(key_id, wrapped_key, body)
    return TaskSecret(variable, is_file == 1, pool, name, version or 0, sealed, first or 0)
