"""Repository of the catalogue: its documents, all their versions, and which of them refer to which."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from taskyard.core.states import Millis
from taskyard.core.structs import value
from taskyard.store.queries import Row, Session

#: Before the first place of a page.
FIRST: Final = ("", "")
#: Of a document: its kind and its name.
Name = tuple[str, str]


@value
class DocumentRow:
    """A document as it is now."""

    kind: str
    name: str
    pool: str
    version: int
    body: str
    changed_ms: Millis
    changed_by: str


@value
class VersionRow:
    """One version of a document."""

    version: int
    pool: str
    body: str | None  # None: it was deleted then
    changed_ms: Millis
    changed_by: str


class CatalogueRepo:
    """The tables `catalogue`, `catalogue_version`, `catalogue_reference` and `catalogue_lock`."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def lock(self) -> int:
        """Lock the catalogue against other changes, until this transaction ends; return how many there were."""
        return int(self._session.fetch("lock_catalogue")[0][0])

    def changes(self) -> int:
        """Return how often the catalogue was changed."""
        return int(self._session.fetch("select_catalogue_changes")[0][0])

    def read(self, named: Collection[Name]) -> dict[Name, DocumentRow]:
        """Read documents by kind and name."""
        return self._named("select_documents", named)

    def lock_documents(self, named: Collection[Name]) -> dict[Name, DocumentRow]:
        """Read and lock documents; all transactions lock them in the same order."""
        return self._named("lock_documents", named)

    def page(self, kinds: Collection[str], pools: Collection[str] | None, after: Name, count: int) -> list[DocumentRow]:
        """Return documents of some kinds after a kind and a name, of some pools or, with None, of all."""
        if pools is None:
            found = self._session.fetch("select_document_page", sorted(kinds), *after, count)
        else:
            found = self._session.fetch("select_document_page_of_pools", sorted(kinds), sorted(pools), *after, count)
        return [DocumentRow(*row) for row in found]

    def last_versions(self, named: Collection[Name]) -> dict[Name, int]:
        """Return the last version of documents, of deleted ones, too."""
        kinds, names = _kinds_and_names(named)
        found = self._session.fetch("select_last_versions", kinds, names) if named else []
        return {(row[0], row[1]): row[2] for row in found if (row[0], row[1]) in named}

    def versions(self, kind: str, name: str, before: int, count: int) -> list[VersionRow]:
        """Return versions of a document before one, the newest first."""
        return [VersionRow(*row) for row in self._session.fetch("select_document_versions", kind, name, before, count)]

    def save(self, rows: Sequence[DocumentRow], references: Iterable[tuple[Name, Name]], kept: int) -> None:
        """Store documents and what they refer to, each as its newest version; `kept` versions are remembered."""
        named = [(row.kind, row.name) for row in rows]
        self._session.execute_many("upsert_documents", [_columns(row) for row in rows])
        self._add_versions([(row, row.body) for row in rows], kept)
        self._session.execute_many("delete_references", named)
        self._session.execute_many("insert_references", [(*one, *other) for one, other in references])
        self._session.execute("count_catalogue_change")

    def delete(self, row: DocumentRow, kept: int) -> None:
        """Delete a document; its last version has no body, and the number of `row`."""
        self._session.execute_many("delete_documents", [(row.kind, row.name)])
        self._session.execute_many("delete_references", [(row.kind, row.name)])
        self._add_versions([(row, None)], kept)
        self._session.execute("count_catalogue_change")

    def referrers(self, kind: str, name: str, count: int) -> list[tuple[str, str, str]]:
        """Return documents that refer to one: kind, name, pool."""
        return [(row[0], row[1], row[2]) for row in self._session.fetch("select_referrers", kind, name, count)]

    def references_among(self, kind: str) -> list[tuple[str, str, str]]:
        """Return which documents of one kind refer to which others of it: name, pool, name of the other."""
        return [(row[0], row[1], row[2]) for row in self._session.fetch("select_references_among", kind)]

    def references_of(self, named: Collection[Name]) -> dict[Name, frozenset[Name]]:
        """Return what documents refer to."""
        found: dict[Name, set[Name]] = {}
        for kind, name, to_kind, to_name in self._session.fetch("select_references", *_kinds_and_names(named)):
            found.setdefault((kind, name), set()).add((to_kind, to_name))
        return {name: frozenset(others) for name, others in found.items() if name in named}

    def exist(self, named: Collection[Name]) -> set[Name]:
        """Return which of some documents there are."""
        found = self._session.fetch("select_document_names", *_kinds_and_names(named)) if named else []
        return {(row[0], row[1]) for row in found} & set(named)

    def _named(self, statement: str, named: Collection[Name]) -> dict[Name, DocumentRow]:
        found = self._session.fetch(statement, *_kinds_and_names(named)) if named else []
        return {(row[0], row[1]): DocumentRow(*row) for row in found if (row[0], row[1]) in named}

    def _add_versions(self, rows: Sequence[tuple[DocumentRow, str | None]], kept: int) -> None:
        self._session.execute_many("insert_document_versions", [_version(row, body) for row, body in rows])
        old = [(row.kind, row.name, row.version - kept) for row, _ in rows if row.version > kept]
        self._session.execute_many("delete_old_versions", old)


def _kinds_and_names(named: Collection[Name]) -> tuple[list[str], list[str]]:
    return sorted({kind for kind, _ in named}), sorted({name for _, name in named})


def _columns(row: DocumentRow) -> Row:
    return (row.kind, row.name, row.pool, row.version, row.body, row.changed_ms, row.changed_by)


def _version(row: DocumentRow, body: str | None) -> Row:
    return (row.kind, row.name, row.version, row.pool, body, row.changed_ms, row.changed_by)
