"""Repository of bots, and of the queues that they serve."""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

import msgspec

from taskyard.core.fleet import BotFacts
from taskyard.core.matching import Dimensions
from taskyard.core.states import BotId, Millis, State
from taskyard.core.structs import struct_replace, value
from taskyard.store.queries import Row, Session
from taskyard.store.row_cache import RowCache
from taskyard.store.rows import CallingBot

_DIMENSIONS = msgspec.json.Decoder(Dimensions)
#: One per bot and per queue of a large fleet.
_DIMENSIONS_KEPT = 20_000
_DELETES = ("delete_bot_queues", "delete_bot_settings", "delete_bot_dimensions", "delete_bots")


def encode_dimensions(dimensions: Dimensions) -> str:
    """Encode canonical dimensions."""
    return msgspec.json.encode(dimensions).decode()


@lru_cache(maxsize=_DIMENSIONS_KEPT)
def decode_dimensions(text: str) -> Dimensions:
    """Decode canonical dimensions; equal texts give the same object."""
    return _DIMENSIONS.decode(text) if text else ()


def encode_caches(keys: Iterable[str]) -> str:
    """Encode the keys of caches."""
    return " ".join(keys)


@lru_cache(maxsize=_DIMENSIONS_KEPT)
def decode_caches(text: str | None) -> frozenset[str]:
    """Decode the keys of caches."""
    return frozenset(text.split(" ")) if text else frozenset()


@value
class BotRecord:
    """A bot: what the rules know about it, its session, its latest polls, and its number of events."""

    facts: BotFacts
    session: str
    recent_polls: str  # one per line, newest first
    events: int
    previous_sessions: str = ""  # one per line; only `read` fills it in
    drains: bool = False  # the bot itself asks for no more tasks
    # Only `read` fills in the following.
    pool: str | None = None  # to which its name belongs
    caches: frozenset[str] = frozenset()  # the keys of those that it holds
    snapshot: int | None = None  # the id of its dimensions and its version as they are now
    failures: int = 0  # how often in a row it lost attempts,
    failed_ms: Millis | None = None  # and when it did so last


@value
class SnapshotRow:
    """What a bot was at some time."""

    dimensions: Dimensions
    version: str  # of its program; empty if it did not say


@value
class QueueRow:
    """The queue of all waiting slices with one set of dimensions."""

    id: int
    number: int
    hash: int
    root: str
    pool: str
    dimensions: Dimensions


class BotRepo:
    """The tables whose names begin with `bot`, and `forgotten_bot`."""

    __slots__ = ("_cache", "_session")

    def __init__(self, session: Session, cache: RowCache) -> None:
        self._session = session
        self._cache = cache

    def read(self, ids: Collection[str]) -> dict[str, BotRecord]:
        """Read and lock bots; does not count the attempts that they run."""
        return {row[0]: _whole_bot(row) for row in self._session.fetch("lock_bots", ids)} if ids else {}

    def prefetch_callers(self, ids: Collection[str]) -> None:
        """Hint that `callers` follows."""
        unknown = [id for id in ids if id not in self._cache.bots]
        if unknown:
            self._session.prefetch("lock_callers", unknown)

    def callers(self, ids: Collection[str]) -> dict[str, CallingBot]:
        """Return what a poll needs to know of bots, from the cache or locked from the database."""
        known = self._cache.bots
        unknown = [id for id in ids if id not in known]
        for row in self._session.fetch("lock_callers", unknown) if unknown else ():
            known[row[0]] = CallingBot(row[1], row[2], row[3] == 1, row[4], row[5])
        return {id: known[id] for id in ids if id in known}

    def read_all(self) -> list[BotRecord]:
        """Read all bots, with the number of attempts that each runs."""
        return [_bot(row, row[14]) for row in self._session.fetch("select_fleet")]

    def last_servers(self, ids: Collection[str]) -> dict[str, str]:
        """Return which server each of these bots last spoke to."""
        return {row[0]: row[1] for row in self._session.fetch("select_last_servers", ids)} if ids else {}

    def record_polls(self, rows: Sequence[tuple[str, str, Millis, str]]) -> None:
        """Record polls of bots: id, latest polls, time, server."""
        self._session.execute_many("record_polls", rows)
        known = self._cache.bots
        for id, polls, _, _ in rows:
            bot = known.get(id)
            if bot is not None:
                known[id] = CallingBot(bot.session, polls, False, bot.changes, bot.pool)

    def begin_sessions(self, rows: Sequence[Row]) -> None:
        """Begin sessions, except for names that belong to another pool.

        A row: id, pool, session, previous sessions, slots, first seen, last seen, server, quarantined, maintenance,
        draining.
        """
        self._session.execute_many("begin_bot_sessions", rows)
        self._forget(row[0] for row in rows)

    def set_dimensions(self, rows: Sequence[Row]) -> None:
        """Store the dimensions of bots, which have yet to say which caches they hold: id, dimensions."""
        self._session.execute_many("upsert_bot_dimensions", rows)

    def set_settings(self, rows: Sequence[Row]) -> None:
        """Store the settings of an admin: id, quarantined, maintenance, draining, terminated."""
        self._session.execute_many("upsert_bot_settings", rows)
        self._session.execute_many("count_bot_changes", [(row[0],) for row in rows])
        self._forget(row[0] for row in rows)

    def set_snapshots(self, now: Millis, rows: Sequence[tuple[str, int, str, str]]) -> None:
        """Store what bots are from now on: id, snapshot, dimensions, version."""
        new = {snapshot: (snapshot, dimensions, version, now) for _, snapshot, dimensions, version in rows}
        self._session.execute_many("upsert_bot_snapshots", [new[id] for id in sorted(new)])
        self._session.execute_many("touch_bot_snapshots", [(id, now) for id, _, _, _ in rows])
        self._session.execute_many(
            "update_bot_snapshots", [(id, snapshot, version) for id, snapshot, _, version in rows]
        )
        self._forget(row[0] for row in rows)

    def snapshots(self, ids: Collection[int]) -> dict[int, SnapshotRow]:
        """Return snapshots by id."""
        rows = self._session.fetch("select_bot_snapshots", ids) if ids else ()
        return {row[0]: SnapshotRow(decode_dimensions(row[1]), row[2]) for row in rows}

    def delete_snapshots(self, before: Millis, count: int) -> int:
        """Delete snapshots that no bot has, and had since a time; return how many."""
        return self._session.execute("delete_bot_snapshots", before, count)

    def set_caches(self, rows: Sequence[Row]) -> None:
        """Store which caches bots hold: id, keys as `encode_caches` writes them."""
        self._session.execute_many("update_bot_caches", rows)
        self._session.execute_many("count_bot_changes", [(row[0],) for row in rows])
        self._forget(row[0] for row in rows)

    def set_failures(self, rows: Sequence[Row]) -> None:
        """Store how often in a row bots have lost attempts: id, number, time of the last one."""
        self._session.execute_many("update_bot_failures", rows)
        self._forget(row[0] for row in rows)

    def dead(self, ids: Collection[str], before: Millis, count: int) -> list[str]:
        """Return those of some bots that have ended or are missing, hold no task, and were last seen before a time."""
        return [row[0] for row in self._session.fetch("select_dead_bots", ids, before, count)] if ids else []

    def delete_events(self, ids: Collection[str], count: int) -> int:
        """Delete at most `count` events of bots; return how many."""
        return self._session.execute("delete_bot_events", ids, count) if ids else 0

    def delete(self, ids: Collection[str], now: Millis) -> None:
        """Delete bots that have no events any more."""
        self._session.execute_many("touch_bot_snapshots", [(id, now) for id in ids])
        for name in _DELETES if ids else ():
            self._session.execute(name, ids)
        self._forget(ids)

    def bind_names(self, rows: Sequence[Row]) -> None:
        """Store to which pools the names of forgotten bots belong: id, pool, time."""
        self._session.execute_many("insert_forgotten_bots", rows)

    def bound_names(self, ids: Collection[str]) -> dict[str, str]:
        """Return the pools to which the names of forgotten bots belong; other names are left out."""
        return {row[0]: row[1] for row in self._session.fetch("select_forgotten_bots", ids)} if ids else {}

    def unbind_names(self, ids: Collection[str]) -> None:
        """Let the names of forgotten bots belong to no pool."""
        if ids:
            self._session.execute("delete_forgotten_bots", ids)

    def clear_terminations(self, ids: Collection[str]) -> None:
        """Withdraw the order to terminate, because new bots of these names have begun."""
        self._session.execute_many("clear_bot_termination", [(id,) for id in ids])

    def end_sessions(self, ids: Collection[str]) -> None:
        """End the sessions of bots that said goodbye."""
        self._session.execute_many("end_bot_sessions", [(id,) for id in ids])
        self._forget(ids)

    def sessions(self) -> list[tuple[str, str, str]]:
        """Return all bots with their sessions, and the sessions that those replaced, one per line."""
        return [(row[0], row[1], row[2]) for row in self._session.fetch("select_sessions")]

    def replace_sessions(self, rows: Sequence[Row]) -> None:
        """Replace the sessions of bots: bot, session, the sessions that it replaces."""
        self._session.execute_many("replace_sessions", rows)
        self._forget([row[0] for row in rows])

    def release_names(self, ids: Collection[str]) -> None:
        """Let the names of bots belong to no pool."""
        self._session.execute_many("release_bot_names", [(id,) for id in ids])
        self._forget(ids)

    def mark_missing(self, ids: Collection[str]) -> None:
        """Mark bots as missing."""
        self._session.execute_many("mark_bots_missing", [(id,) for id in ids])
        self._forget(ids)

    def silent(self, before: Millis, count: int) -> list[str]:
        """Return bots last seen before a time that are not marked as missing."""
        return [row[0] for row in self._session.fetch("select_silent_bots", before, count)]

    def count_events(self, rows: Sequence[Row]) -> None:
        """Write how many events bots have: id, number."""
        self._session.execute_many("update_bot_event_counts", rows)

    def add_events(self, rows: Sequence[Row]) -> None:
        """Insert events of bots: bot, id, time, kind, task, attempt, note."""
        self._session.execute_many("insert_bot_events", rows)

    def events(self, id: str, count: int) -> list[Row]:
        """Return the events of a bot, newest first."""
        return self._session.fetch("select_bot_events", id, count)

    def drop_queues(self, ids: Collection[str]) -> None:
        """Delete which queues bots serve."""
        self._session.execute("delete_bot_queues", ids)

    def add_queues(self, rows: Sequence[Row]) -> None:
        """Insert which queues bots serve: bot, queue."""
        self._session.execute_many("insert_bot_queues", rows)

    def held(self, ids: Collection[str]) -> list[tuple[str, int, int]]:
        """Return what bots have in hand: bot, task, queue."""
        return [(row[0], row[1], row[2]) for row in self._session.fetch("select_held", ids)]

    def reservations(self, ids: Collection[str], states: Iterable[State]) -> list[tuple[str, int, int]]:
        """Return for which tasks bots are kept free: bot, task, and its queue; -1 if it is in none of some states."""
        return [
            (row[0], row[1], -1 if row[2] is None else row[2])
            for row in self._session.fetch("select_reservations", ids, [one.text for one in states])
        ]

    def reserve(self, rows: Sequence[tuple[str, int | None]]) -> None:
        """Write for which task each bot is kept free: bot, task."""
        self._session.execute_many("reserve_bots", rows)

    def reserved_for(self, tasks: Collection[int]) -> list[tuple[BotFacts, int]]:
        """Return the bots that are kept free for tasks, not locked: the bot, the task."""
        rows = self._session.fetch("select_reserved_bots", tasks) if tasks else ()
        return [(_bot(row, 0).facts, row[13]) for row in rows]

    def set_aggregation(self, id: str, dimensions: str) -> None:
        """Store the dimensions of all bots together."""
        self._session.execute("upsert_aggregation", id, dimensions)

    def _forget(self, ids: Iterable[str]) -> None:
        for id in ids:
            self._cache.bots.pop(id, None)


class QueueRepo:
    """The table `queue`."""

    __slots__ = ("_cache", "_session")

    def __init__(self, session: Session, cache: RowCache) -> None:
        self._session = session
        self._cache = cache

    def prefetch(self, number: int) -> None:
        """Hint that `after` follows."""
        if number != self._cache.newest_queue:
            self._session.prefetch("select_queues_after", number)

    def after(self, number: int) -> list[QueueRow]:
        """Return the queues created after a queue number."""
        if number == self._cache.newest_queue:
            return []
        found = [queue_row(row) for row in self._session.fetch("select_queues_after", number)]
        self._cache.newest_queue = found[-1].number if found else number
        return found

    def with_dimensions(self, texts: Collection[str]) -> dict[str, tuple[int, Millis]]:
        """Return the ids of queues, and when they were used, by their dimensions as text."""
        found = self._session.fetch("select_queues_by_dimensions", texts) if texts else ()
        return {row[1]: (row[0], Millis(row[2])) for row in found}

    def touch(self, ids: Collection[int], now: Millis) -> None:
        """Note that queues are used; they are locked from here on, if they are still there."""
        self._session.execute_many("touch_queues", [(id, now) for id in sorted(ids)])

    def with_hashes(self, hashes: Collection[int]) -> list[tuple[int, int]]:
        """Return the queues that have one of `hashes`: id, hash."""
        return [(row[0], row[1]) for row in self._session.fetch("select_queues_by_hash", hashes)] if hashes else []

    def lock_count(self) -> int:
        """Return the number of the newest queue; the lock keeps other transactions from adding one."""
        return int(self._session.fetch("lock_queue_count")[0][0])

    def add(self, rows: Sequence[Row], total: int) -> None:
        """Insert queues, of which `total` is the newest: id, number, hash, root, pool, dimensions, time of use."""
        self._cache.newest_queue = None
        self._session.execute_many("insert_queues", rows)
        self._session.execute("update_queue_count", total)


def _bot(row: Row, busy: int) -> BotRecord:
    facts = BotFacts(
        BotId(row[0]), decode_dimensions(row[11]), row[4], row[3], busy, row[5], row[6], row[7] == 1, row[8] == 1,
        row[9] == 1, row[12] == 1,
    )  # fmt: skip
    return BotRecord(facts, row[1], row[2], row[10], drains=row[13] == 1)


def _whole_bot(row: Row) -> BotRecord:
    """Read a row of `lock_bots`."""
    return struct_replace(
        _bot(row, 0),
        previous_sessions=row[14],
        pool=row[15],
        caches=decode_caches(row[16]),
        snapshot=row[17],
        failures=row[18],
        failed_ms=row[19],
    )


def queue_row(row: Row) -> QueueRow:
    """Read a row of `queue`."""
    return QueueRow(row[0], row[1], row[2], row[3], row[4], decode_dimensions(row[5]))
