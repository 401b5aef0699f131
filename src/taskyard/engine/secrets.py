"""Secrets of one database: store, list, delete and encrypt them anew, and give them to the attempts that name them.

Encryption runs on the caller's thread, outside of transactions; the lifecycle writes what is encrypted. New secrets are
encrypted with the key that the database names, so that a server whose key file has a newer one seals nothing that the
others cannot open yet: a rotation changes to the newer one.
"""

import logging
import secrets
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from taskyard.core.ids import Key, text_of
from taskyard.core.states import LEASED
from taskyard.core.structs import value
from taskyard.engine.bulk_load import Transact
from taskyard.engine.clock import Clock
from taskyard.engine.errors import Unavailable, outages
from taskyard.engine.failpoints import Boundary
from taskyard.engine.keyring import KEY_BYTES, Changed, Keyring, NoKey, keyed_hash
from taskyard.lifecycle import secrets as steps
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.idempotency import run_once
from taskyard.lifecycle.secrets import REWRAPPED_MAX, path_of
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.connection import Repo, Store
from taskyard.store.queries import Row
from taskyard.store.repo.secrets import SecretListing, SecretRow, TaskSecret, WrappedBytesKey, WrappedKey
from taskyard.wire.bot_protocol import AttemptSecret

#: How often storing a secret is tried again after another request has changed it meanwhile.
TRIES_MAX: Final = 10
#: The pool of the secrets of the server itself: no task can name it, and no list has it.
SERVER_POOL: Final = ""
#: What the key of the keyed hashes is bound to.
_HASHES: Final = "keyed hashes"
_LOG = logging.getLogger(__name__)
Answer = TypeVar("Answer")


@value
class Rotation:
    """What a rotation did."""

    key_id: str  # the key that encrypts all secrets now, as far as they could be opened
    rewrapped: int
    unopened: int  # how many secrets are encrypted with keys that are not there
    unused: tuple[str, ...]  # keys of the file that encrypt nothing any more


class RequestBytes:
    """The secret bytes of one request, until they are stored for its task."""

    def __init__(self, keyring: Keyring, key_id: str, body: bytes, digest: str) -> None:
        self.digest = digest  # keyed
        self._keyring = keyring
        self._key_id = key_id
        self._body = body

    def row(self, task: int) -> Row:
        """Return the row for a task."""
        sealed = self._keyring.seal(self._key_id, self._body, _about_bytes(task))
        return (task, task, self.digest, sealed.key_id, sealed.wrapped_key, sealed.body)


class Secrets:
    """The secrets of one database, as one server can use them."""

    def __init__(self, store: Store, transact: Transact, clock: Clock, keyring: Keyring) -> None:
        self.keyring = keyring
        self._store = store
        self._transact = transact
        self._clock = clock

    # People.

    def save(self, pool: str, name: str, body: bytes, *, actor: str, key: str = "") -> SecretListing | Refusal:
        """Store a secret, or replace its value; the same value again changes nothing."""
        for _ in range(TRIES_MAX):
            stored = self._read(lambda repo: repo.secrets.read(pool, name))
            try:
                key_id, hash_key = self._sealing_key()
                digest = keyed_hash(hash_key, pool.encode(), name.encode(), body)
                row = self._sealed(stored, pool, name, body, (key_id, digest, actor))
            except (NoKey, Changed) as trouble:
                return _no_key(trouble)
            answer = self._save(row, digest, key)
            if answer is not None:
                return answer if isinstance(answer, Refusal) else _listing(answer)
        raise Unavailable(f"secret {path_of(pool, name)} was changed by others {TRIES_MAX} times in a row")

    def _sealed(
        self, stored: SecretRow | None, pool: str, name: str, body: bytes, said: tuple[str, str, str]
    ) -> SecretRow:
        """Return the row to store: the stored one, if it has this value and can be opened."""
        key_id, digest, actor = said
        if stored is not None and stored.digest == digest and stored.sealed.key_id in self.keyring.ids():
            return stored
        version = 1 if stored is None else stored.version + 1
        sealed = self.keyring.seal(key_id, body, _about(pool, name, version))
        now = self._clock.now()
        return SecretRow(pool, name, version, digest, sealed, now, now, actor)

    def _save(self, row: SecretRow, digest: str, key: str) -> SecretRow | Refusal | None:
        """Store a secret; None if it has changed since it was read."""

        def again(transaction: Transaction) -> SecretRow | None:
            return transaction.repo.secrets.read(row.pool, row.name)

        def act(transaction: Transaction) -> SecretRow | Refusal | None:
            stored = again(transaction)
            if stored != row and not steps.follows(stored, row):
                return None
            # The keyed hash stands for the value: the value itself is in no idempotency key.
            said = ("set_secret", row.pool, row.name, digest)
            return run_once(transaction, key, said, lambda _: steps.set_secret(transaction, stored, row), again)

        return self._transact(act, Boundary.OTHER)

    def delete(self, pool: str, name: str, *, actor: str, key: str = "") -> int | Refusal:
        """Delete a secret; return how many tasks that have not ended name it."""
        delete = partial(steps.delete_secret, pool=pool, name=name, actor=actor)
        count = partial(steps.count_waiting, pool=pool, name=name)
        said = ("delete_secret", pool, name)
        return self._transact(lambda transaction: run_once(transaction, key, said, delete, count), Boundary.OTHER)

    def own(self, name: str) -> bytes | Refusal:
        """Return a secret of the server itself."""
        row = self._read(lambda repo: repo.secrets.read(SERVER_POOL, name))
        if row is None:
            return Refusal(Code.NO_SECRET, f"there is no secret {name}")
        try:
            return self.keyring.open(row.sealed, _about(SERVER_POOL, name, row.version))
        except (NoKey, Changed) as trouble:
            return Refusal(Code.NO_SECRET_KEY, f"the secret {name} cannot be opened: {trouble}")

    # Keys.

    def trouble(self) -> str | None:
        """Say why this server cannot use the secrets of the database; None if it can, or there are none."""
        found = self._read(lambda repo: repo.secrets.hash_key())
        if found is None or found[0] in self.keyring.ids():
            return None
        return f"the secrets of this database cannot be opened: {self.keyring.trouble(found[0])}"

    def rotate(self, *, actor: str, abandon: bool = False) -> Rotation | Refusal:
        """Encrypt the keys of all secrets with the first key of the file, page by page.

        One that was interrupted is continued by the next. With `abandon` a lost key is given up: what only that key
        opens stays closed until it is set anew or the key is found.
        """
        try:
            target = self.keyring.make_first() if abandon else self.keyring.first()
            self._move_hash_key(target, abandon)
            rewrapped = self._rewrap_all(target)
        except (NoKey, Changed) as trouble:
            return _no_key(trouble)
        counts = self._read(lambda repo: repo.secrets.count_by_key())
        known = self.keyring.ids()
        unopened = sum(count for key_id, count in counts.items() if key_id not in known)
        unused = tuple(sorted(known - counts.keys() - {target}))
        note = f"key {target}: {rewrapped} encrypted anew"
        self._transact(lambda transaction: steps.record_rotation(transaction, actor, note), Boundary.OTHER)
        return Rotation(target, rewrapped, unopened, unused)

    def _sealing_key(self) -> tuple[str, bytes]:
        """Return the key that encrypts new secrets, and that of the keyed hashes; make both with the first secret."""
        found = self._read(lambda repo: repo.secrets.hash_key())
        if found is None:
            self._add_hash_key(self.keyring.make_first())
            found = self._read(lambda repo: repo.secrets.hash_key())
            assert found is not None, "it was just stored, here or by another server"
        try:
            return found[0], self.keyring.unwrap(*found, _HASHES)
        except NoKey as trouble:
            raise NoKey(f"{trouble}; if that key is lost for good: taskyard secret rotate --abandon") from trouble

    def _add_hash_key(self, key_id: str) -> None:
        wrapped = self.keyring.wrap(key_id, secrets.token_bytes(KEY_BYTES), _HASHES)
        self._transact(lambda transaction: transaction.repo.secrets.add_hash_key(key_id, wrapped), Boundary.OTHER)

    def _move_hash_key(self, target: str, abandon: bool) -> None:
        found = self._read(lambda repo: repo.secrets.hash_key())
        if found is None:
            self._add_hash_key(target)
            return
        old, wrapped = found
        if old == target:
            return
        if abandon and old not in self.keyring.ids():
            body = secrets.token_bytes(KEY_BYTES)  # equal values of before and after are not seen to be equal
        else:
            body = self.keyring.unwrap(old, wrapped, _HASHES)
        new = self.keyring.wrap(target, body, _HASHES)
        self._transact(lambda transaction: transaction.repo.secrets.replace_hash_key(old, target, new), Boundary.OTHER)

    def _rewrap_all(self, target: str) -> int:
        """Encrypt keys anew until no other key of the file encrypts any; return how many."""
        done = 0
        while page := self._rewrap_page(target, self.keyring.ids() - {target}):
            done += page
        return done

    def _rewrap_page(self, target: str, others: frozenset[str]) -> int:
        def look(repo: Repo) -> tuple[list[WrappedKey], list[WrappedBytesKey]]:
            return repo.secrets.of_keys(others, REWRAPPED_MAX), repo.secrets.bytes_of_keys(others, REWRAPPED_MAX)

        named, of_requests = self._read(look)
        rows = [
            (one.pool, one.name, one.version, target, self._rewrapped(target, one, _about(*_place(one))))
            for one in named
        ]
        bytes_rows = [(one.task, target, self._rewrapped(target, one, _about_bytes(one.first))) for one in of_requests]
        if rows or bytes_rows:
            self._transact(lambda transaction: steps.rewrap(transaction, rows, bytes_rows), Boundary.OTHER)
        return len(rows) + len(bytes_rows)

    def _rewrapped(self, target: str, one: WrappedKey | WrappedBytesKey, about: str) -> bytes:
        return self.keyring.wrap(target, self.keyring.unwrap(one.key_id, one.wrapped_key, about), about)

    # Requests and attempts.

    def of_request(self, body: bytes) -> RequestBytes | Refusal:
        """Take the secret bytes of a request."""
        try:
            key_id, hash_key = self._sealing_key()
        except (NoKey, Changed) as trouble:
            return _no_key(trouble)
        return RequestBytes(self.keyring, key_id, body, keyed_hash(hash_key, body))

    def give(self, task: int, attempt: int, fence: int, actor: str) -> list[AttemptSecret] | Refusal:
        """Return the secrets that an attempt may use, once that is recorded."""

        def look(repo: Repo) -> list[TaskSecret]:
            found = repo.tasks.read([task])
            leased = bool(found) and found[0].state in LEASED
            return repo.secrets.of_task(task, found[0].life.slice_index) if leased else []

        named = self._read(look)
        given = [self._opened(task, one) for one in named]
        refusal = next((one for one in given if isinstance(one, Refusal)), None)
        if refusal is not None:
            _LOG.error("a secret of task %s: %s", text_of(Key(task)), refusal.text)
            return refusal
        refusal = self._transact(
            lambda transaction: steps.record_uses(transaction, task, attempt, fence, named, actor), Boundary.OTHER
        )
        return refusal or [one for one in given if not isinstance(one, Refusal)]

    def _opened(self, task: int, one: TaskSecret) -> AttemptSecret | Refusal:
        name = f"secret {path_of(one.pool, one.name)}" if one.name else "the secret bytes of the request"
        if one.sealed is None:
            gone = "there is no" if one.name else "it no longer has"
            return Refusal(Code.NO_SECRET, f"{gone} {name}")
        about = _about(one.pool, one.name, one.version) if one.name else _about_bytes(one.first)
        try:
            return AttemptSecret(one.variable, self.keyring.open(one.sealed, about), one.is_file)
        except (NoKey, Changed) as trouble:
            return Refusal(Code.NO_SECRET_KEY, f"{name} of task {text_of(Key(task))} cannot be opened: {trouble}")

    def _read(self, look: Callable[[Repo], Answer]) -> Answer:
        with outages(), self._store.read() as repo:
            return look(repo)


def _about(pool: str, name: str, version: int) -> str:
    """Say what a named secret is: its ciphertext is bound to that."""
    return f"secret {version} {len(pool)} {pool} {name}"


def _about_bytes(first: int) -> str:
    return f"secret bytes of {first}"


def _place(one: WrappedKey) -> tuple[str, str, int]:
    return one.pool, one.name, one.version


def _listing(row: SecretRow) -> SecretListing:
    return SecretListing(
        row.pool, row.name, row.version, row.sealed.key_id, row.created_ms, row.changed_ms, row.changed_by
    )


def _no_key(trouble: Exception) -> Refusal:
    return Refusal(Code.NO_SECRET_KEY, str(trouble))
