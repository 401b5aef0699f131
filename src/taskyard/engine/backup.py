"""Backups: one archive with all rows of a database and the files that they refer to; and new databases made of them.

An archive is a zip file. Each table is a member with one row per line, as JSON; the trees and chunks of the files of
each pool are two more; the manifest says what there is, with a count and a digest of each. It does not depend on the
database that it was made of: a backup of SQLite can be restored to PostgreSQL, and back.

The digest of a table is the sum of the hashes of its rows, so the order of the rows does not matter.
"""

import os
import secrets
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import version as version_of
from io import BufferedReader
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Final, TypeVar

import msgspec

from taskyard.core.structs import value
from taskyard.engine.clock import Clock
from taskyard.engine.errors import EngineError, outages
from taskyard.engine.file_lock import FileLock
from taskyard.files.blob_frames import frame
from taskyard.files.digests import BadTree, read_tree, sha256
from taskyard.files.store import FileStore, Kind, Space
from taskyard.lifecycle.restored import begin_anew
from taskyard.private_files import FILE_MODE
from taskyard.store import migrate, tables
from taskyard.store.connection import open_store
from taskyard.store.queries import Row
from taskyard.store.tables import NewDatabase, Snapshot, Table

#: The version of the form of archives.
FORMAT: Final = 1
#: How many rows are hashed and written at once.
ROWS_MAX: Final = 1_000
#: How many trees are looked up at once.
TREES_MAX: Final = 500
#: How many bytes of files are stored at once: more than one chunk.
STORED_MAX: Final = 32 * 1024 * 1024
#: How many names of missing files an archive lists.
MISSING_LISTED_MAX: Final = 20
#: The longest manifest: a line for each table and each pool.
_MANIFEST_MAX: Final = 64 * 1024 * 1024
_KEY_FILE_MAX: Final = 65_536
#: Tables compress well; the lowest level is four times as fast as the usual one, and a tenth larger.
_LEVEL: Final = 1
_FRAME_BYTES: Final = 4
_READ_BYTES: Final = 1 << 20
_HASH_BYTES: Final = 32
_MANIFEST: Final = "manifest.json"
_KEYS: Final = "secrets.key"
#: Called with how many rows are done.
Said = Callable[[int], None]
#: Called with what is done now, how much of it is done, and how much it is.
Progress = Callable[[str, int, int], None]
T = TypeVar("T")


class BadArchive(EngineError):
    """An archive that cannot be used; the text says why."""


class NotPossible(EngineError):
    """A backup, a restore or a move that cannot be made as it was asked for; the text says why, and what to do."""


@value
class TableEntry:
    """A table of an archive."""

    table: Table
    rows: int
    digest: str


@value
class FilesEntry:
    """The trees or the chunks of the files of one pool."""

    pool: str  # as `files.store.Space` has it
    kind: Kind
    count: int
    bytes: int
    digest: str


@value
class Manifest:
    """What an archive has."""

    format: int
    taskyard: str  # the version of the program that made it
    schema: str  # the version of the schema
    taken_ms: int
    tables: tuple[TableEntry, ...]
    files: tuple[FilesEntry, ...]
    has_files: bool  # whether files were wanted
    missing: int  # how many trees and chunks the rows or trees refer to, and the store of files does not have
    missing_named: tuple[str, ...]  # some of them
    has_secrets: bool  # whether there are secrets, which only their keys open
    has_keys: bool  # whether the keys of the secrets are in the archive

    @property
    def rows(self) -> int:
        """The rows of all tables."""
        return sum(one.rows for one in self.tables)

    @property
    def file_bytes(self) -> int:
        """The bytes of all files."""
        return sum(one.bytes for one in self.files)


@dataclass(frozen=True, slots=True)
class Parts:
    """What belongs to a database beside its rows."""

    files: Callable[[], FileStore] | None = None  # opens the place of the files of tasks
    no_files: bool = False  # whether they are left out
    keys: Path | None = None  # the file with the keys of secrets


class SetDigest:
    """The number and the digest of the members of a set, in any order."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0

    def add(self, members: Collection[bytes]) -> None:
        """Add members."""
        self.count += len(members)
        for one in members:
            self._sum += int.from_bytes(blake2b(one, digest_size=_HASH_BYTES).digest(), "big")

    @property
    def text(self) -> str:
        """The digest."""
        return (self._sum % (1 << 8 * _HASH_BYTES)).to_bytes(_HASH_BYTES, "big").hex()


encode: Final = msgspec.json.Encoder().encode


def digest_table(found: Snapshot, table: Table, said: Said) -> SetDigest:
    """Count and hash the rows of a table; `said` is called with the number of rows so far."""
    digest = SetDigest()
    for page in pages(found.rows(table), ROWS_MAX):
        digest.add([encode(row) for row in page])
        said(digest.count)
    return digest


def rows_said(progress: Progress, done: int, total: int) -> Said:
    """Return what reports the progress of a table, after so many rows of others."""
    return lambda count: progress("rows", done + count, total)


def pages(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of some items each."""
    source = iter(items)
    while page := list(islice(source, size)):
        yield page


# Back up.


def back_up(url: str, target: Path, parts: Parts, clock: Clock, progress: Progress) -> Manifest:
    """Write an archive of a database that may be in use; the file is there when it is complete.

    Without `parts.keys`, whoever has only the archive cannot read the secrets in it.
    """
    files = None if parts.files is None else parts.files()
    if target.exists():
        raise NotPossible(f"there is a file {target} already: choose another name, or remove it first")
    if files is not None:
        _hold_garbage(url, files)
    with (
        _new_private_file(target) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as made,
    ):
        with _unlocked_snapshot(url, target.parent) as found:
            entries, trees = _write_tables(made, found, progress)
        if trees and files is None and not parts.no_files:
            raise NotPossible(
                f"its tasks have files ({len(trees)} trees): say where they are with --files, "
                "or leave them out with --no-files"
            )
        written, missing = ((), []) if files is None else _write_files(made, files, trees, progress)
        if parts.keys is not None:
            made.writestr(_KEYS, parts.keys.read_bytes())
        manifest = Manifest(
            format=FORMAT,
            taskyard=version_of("taskyard"),
            schema=migrate.NEWEST,
            taken_ms=clock.now(),
            tables=entries,
            files=written,
            has_files=not parts.no_files,
            missing=len(missing),
            missing_named=tuple(missing[:MISSING_LISTED_MAX]),
            has_secrets=any(one.rows for one in entries if one.table.name in ("secret", "secret_bytes")),
            has_keys=parts.keys is not None,
        )
        made.writestr(_MANIFEST, encode(manifest))
    return manifest


def _hold_garbage(url: str, files: FileStore) -> None:
    """Keep all trees that are in use for as long as after an upload, so that none is removed while it is copied.

    This comes before the snapshot. What is first used after this was kept by the request that uses it.
    """
    store = open_store(url)
    try:
        for pool in files.pools():
            space = Space(pool, Kind.TREE)
            for some in pages(files.digests(space), TREES_MAX):
                with outages(), store.read() as repo:
                    used = repo.files.used_trees(some)
                files.keep(space, used)
    finally:
        store.close()


@contextmanager
def _unlocked_snapshot(url: str, folder: Path) -> Iterator[Snapshot]:
    """Open a snapshot that holds up nobody: of a file, a copy is read."""
    if not tables.is_file(url):
        with tables.snapshot(url) as found:
            yield found
        return
    with (
        TemporaryDirectory(prefix=".taskyard-backup-", dir=folder) as beside,
        tables.copied_file(url, Path(beside)) as copy,
        tables.snapshot(copy) as found,
    ):
        yield found


def _write_tables(
    archive: zipfile.ZipFile, found: Snapshot, progress: Progress
) -> tuple[tuple[TableEntry, ...], set[str]]:
    """Write all tables; return what was written, and the trees of files that rows refer to."""
    every = tables.tables()
    total, done = sum(map(found.count, every)), 0
    entries, trees = [], set[str]()
    for table in every:
        place = next((at for at, (name, _) in enumerate(table.columns) if name == "tree"), None)
        digest = SetDigest()
        with archive.open(_member(table), "w", force_zip64=True) as member:
            for page in pages(found.rows(table), ROWS_MAX):
                lines = [encode(row) for row in page]
                digest.add(lines)
                member.write(b"\n".join(lines) + b"\n")
                if place is not None:
                    trees.update(row[place] for row in page)
                progress("rows", done + digest.count, total)
        done += digest.count
        entries.append(TableEntry(table, digest.count, digest.text))
    return tuple(entries), trees


def _write_files(
    archive: zipfile.ZipFile, files: FileStore, used: set[str], progress: Progress
) -> tuple[tuple[FilesEntry, ...], list[str]]:
    """Write the trees that are used and their chunks, pool by pool; return what was written, and what is missing."""
    entries: list[FilesEntry] = []
    missing: list[str] = []
    found: set[str] = set()
    for pool in sorted(files.pools()):
        trees, blobs = Space(pool, Kind.TREE), Space(pool, Kind.BLOB)
        wanted = [one for one in files.digests(trees) if one in used]
        found.update(wanted)
        chunks = _chunks(files, trees, wanted)
        for space, digests in ((trees, wanted), (blobs, chunks)):
            entry, lost = _write_bodies(archive, files, space, digests, progress)
            entries.append(entry)
            missing += lost
    missing += sorted(used - found)
    return tuple(one for one in entries if one.count), missing


def _chunks(files: FileStore, space: Space, trees: Iterable[str]) -> list[str]:
    """Return the chunks that trees name; a tree that cannot be read has none, and counts as missing itself."""
    chunks = dict[str, None]()
    for digest in trees:
        with suppress(BadTree):
            chunks.update(dict.fromkeys(read_tree(files.get(space, digest) or b"").chunks()))
    return list(chunks)


def _write_bodies(
    archive: zipfile.ZipFile, files: FileStore, space: Space, digests: Collection[str], progress: Progress
) -> tuple[FilesEntry, list[str]]:
    """Write trees or chunks, each behind its length; return what was written, and what the store does not have."""
    digest, size, missing = SetDigest(), 0, []
    with archive.open(_bodies_member(space.pool, space.kind), "w", force_zip64=True) as member:
        for place, one in enumerate(digests, 1):
            body = files.get(space, one)
            if body is None:
                missing.append(one)
                continue
            member.write(frame(body))
            member.write(body)
            digest.add([one.encode()])
            size += len(body)
            progress("files", place, len(digests))
    return FilesEntry(space.pool, space.kind, digest.count, size, digest.text), missing


@contextmanager
def _new_private_file(target: Path) -> Iterator[IO[bytes]]:
    """Write a file for its owner alone, which has its name when it is complete and durable."""
    part = target.with_name(f"{target.name}.part-{secrets.token_hex(4)}")
    made = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        with open(made, "w+b") as file:
            os.fchmod(made, FILE_MODE)
            yield file
            file.flush()
            os.fsync(made)
        os.link(part, target)  # unlike a rename, it replaces no file that another program has just made
        _sync_folder(target.parent)
    finally:
        part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _member(table: Table) -> str:
    return f"tables/{table.name}.jsonl"


def _bodies_member(pool: str, kind: Kind) -> str:
    return f"files/{pool}/{kind}"


# Read an archive.


class Archive:
    """An archive that is open."""

    def __init__(self, opened: zipfile.ZipFile, manifest: Manifest) -> None:
        self._zip = opened
        self.manifest = manifest

    def rows(self, entry: TableEntry, digest: SetDigest) -> Iterator[Row]:
        """Yield the rows of a table, and add them to a digest."""
        decode = msgspec.json.Decoder(_row_type(entry.table)).decode
        with self._zip.open(_member(entry.table)) as member:
            lines = (line.rstrip(b"\n") for line in BufferedReader(member, _READ_BYTES))  # type: ignore[type-var]
            for page in pages(lines, ROWS_MAX):
                digest.add(page)
                yield from map(decode, page)

    def bodies(self, entry: FilesEntry, digest: SetDigest) -> Iterator[tuple[str, bytes]]:
        """Yield trees or chunks with their digests, and add them to a digest."""
        with self._zip.open(_bodies_member(entry.pool, entry.kind)) as member:
            while head := member.read(_FRAME_BYTES):
                body = member.read(int.from_bytes(head, "big"))
                name = sha256(body)
                digest.add([name.encode()])
                yield name, body

    def keys(self) -> bytes:
        """Return the file with the keys of the secrets."""
        with self._zip.open(_KEYS) as member:
            return member.read(_KEY_FILE_MAX)


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """Open an archive; whatever is wrong with it is a `BadArchive`."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield Archive(archive, _manifest(archive))
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, msgspec.MsgspecError, NotImplementedError) as error:
        raise BadArchive(f"{path} is no backup, or is damaged: {error}") from error


def _manifest(archive: zipfile.ZipFile) -> Manifest:
    with archive.open(_MANIFEST) as member:
        text = member.read(_MANIFEST_MAX)
    # The form is read first: a newer one may have other fields.
    form = msgspec.json.decode(text).get("format")
    if form != FORMAT:
        raise BadArchive(
            f"the archive has form {form} and this program reads form {FORMAT}: use the Taskyard that made it"
        )
    manifest = msgspec.json.decode(text, type=Manifest)
    if not manifest.schema.isascii() or not manifest.schema.isdecimal():
        raise BadArchive(f"the archive names no version of the schema: {manifest.schema}")
    if manifest.schema == migrate.NEWEST and tuple(one.table for one in manifest.tables) != tables.tables():
        raise BadArchive("the archive does not have the tables of its version of the schema")
    return manifest


def _row_type(table: Table) -> Any:
    kinds = {"integer": int | None, "text": str | None, "bytes": bytes | None, "float": float | None}
    return tuple.__class_getitem__(tuple(kinds[kind] for _, kind in table.columns))


def _check(what: str, wanted: TableEntry | FilesEntry, found: SetDigest) -> None:
    count = wanted.rows if isinstance(wanted, TableEntry) else wanted.count
    if (found.count, found.text) != (count, wanted.digest):
        raise BadArchive(
            f"{what} has {found.count} members with digest {found.text[:12]}, not {count} with {wanted.digest[:12]}"
        )


def verify(path: Path, progress: Progress) -> Manifest:
    """Read a whole archive, and check that it has what its manifest says."""
    with opened(path) as archive:
        manifest, done = archive.manifest, 0
        for entry in manifest.tables:
            found = SetDigest()
            for _ in archive.rows(entry, found):
                pass
            _check(f"table {entry.table.name}", entry, found)
            done += found.count
            progress("rows", done, manifest.rows)
        for one in manifest.files:
            found = SetDigest()
            for _ in archive.bodies(one, found):
                progress("files", found.count, one.count)
            _check(f"files of pool {one.pool}", one, found)
    return manifest


# Restore.


def restore(path: Path, url: str, parts: Parts, clock: Clock, progress: Progress) -> Manifest:
    """Make a new database of an archive, and store its files; after an error there is no database.

    What was written is read again, counted and compared with the manifest before the database is there. `parts.keys` is
    where the keys of secrets are put, if the archive has them.
    """
    with opened(path) as archive:
        manifest = archive.manifest
        if manifest.schema > migrate.NEWEST:
            raise migrate.TooNew(manifest.schema)
        if manifest.files and parts.files is None and not parts.no_files:
            raise NotPossible(
                "the archive has files: say where to keep them with --files, or leave them out with --no-files"
            )
        new_keys = _new_keys(archive, parts.keys)
        lock = FileLock(url)
        try:
            with tables.new_database(url, manifest.schema) as made:
                _fill(archive, made, progress)
                if manifest.files and parts.files is not None:
                    _store_files(archive, parts.files(), progress)
                begin_anew(made.repo, clock.now(), clock.word()[:8], f"a backup of {manifest.taken_ms}")
                if new_keys is not None and parts.keys is not None:
                    with _new_private_file(parts.keys) as file:
                        file.write(new_keys)
        finally:
            lock.leave()
    return manifest


def _fill(archive: Archive, made: NewDatabase, progress: Progress) -> None:
    """Write all rows, and compare what is there then."""
    manifest, done = archive.manifest, 0
    for entry in manifest.tables:
        read = SetDigest()
        made.add(entry.table, _reported(archive.rows(entry, read), done, 2 * manifest.rows, progress))
        _check(f"table {entry.table.name} of the archive", entry, read)
        done += read.count
    for entry in manifest.tables:
        found = digest_table(made, entry.table, rows_said(progress, done, 2 * manifest.rows))
        _check(f"table {entry.table.name} of the new database", entry, found)
        done += found.count


def _reported(rows: Iterable[Row], done: int, total: int, progress: Progress) -> Iterator[Row]:
    """Yield rows, and report the progress now and then."""
    for page in pages(rows, ROWS_MAX):
        yield from page
        done += len(page)
        progress("rows", done, total)


def _store_files(archive: Archive, files: FileStore, progress: Progress) -> None:
    for entry in archive.manifest.files:
        found, some, size = SetDigest(), dict[str, bytes](), 0
        for name, body in archive.bodies(entry, found):
            some[name] = body
            size += len(body)
            if size >= STORED_MAX:
                files.put(Space(entry.pool, entry.kind), some)
                some, size = {}, 0
            progress("files", found.count, entry.count)
        files.put(Space(entry.pool, entry.kind), some)
        _check(f"files of pool {entry.pool}", entry, found)


def _new_keys(archive: Archive, keys: Path | None) -> bytes | None:
    """Return the keys to write; None if there are none, or they are there already."""
    if not archive.manifest.has_keys:
        return None
    if keys is None:
        raise NotPossible("the archive has the keys of secrets: say where to put them with --secrets-key-file")
    found = archive.keys()
    if not keys.exists():
        return found
    if keys.read_bytes() != found:
        raise NotPossible(f"there is a file {keys} already, with other keys than the archive: move it away first")
    return None
