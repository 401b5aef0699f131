"""A real store that counts, for each of its transactions, the rows that every statement was given or has found."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from taskyard.store.opening import Store
from taskyard.store.sessions import Row, Session
from taskyard.store.txn import Txn
from tests.engine.rig import Rig


class _Counting:
    """One open transaction, and what was done in it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.counts = Counter[str]()

    def rows(self, name: str, *values: object) -> list[Row]:
        found = self._session.rows(name, *values)
        self.counts[name] += len(found)
        return found

    def run(self, name: str, *values: object) -> int:
        changed = self._session.run(name, *values)
        self.counts[name] += max(0, changed)
        return changed

    def each(self, name: str, rows: Sequence[Row]) -> None:
        self.counts[name] += len(rows)
        self._session.each(name, rows)

    def every(self, name: str, rows: Sequence[Row]) -> None:
        self.counts[name] += len(rows)
        self._session.every(name, rows)


class Counted:
    """A store whose transactions are counted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url = store.url
        self.transactions: list[Counter[str]] = []

    @classmethod
    def under(cls, rig: Rig) -> "Counted":
        """Count what the writer of a rig does from now on."""
        counted = cls(rig.store)
        rig.engine._writer._store = counted
        return counted

    @contextmanager
    def write(self) -> Iterator[Txn]:
        with self._store.write() as txn:
            counting = _Counting(txn.tasks._session)
            yield Txn(counting)
        self.transactions.append(counting.counts)

    @contextmanager
    def read(self) -> Iterator[Txn]:
        with self._store.read() as txn:
            yield txn

    def close(self) -> None:
        self._store.close()

    def each(self, *statements: str) -> list[int]:
        """Say of each transaction how many rows it has had to do with by these statements, if any."""
        sums = [sum(one[name] for name in statements) for one in self.transactions]
        return [count for count in sums if count]
