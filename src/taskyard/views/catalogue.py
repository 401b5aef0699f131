"""The documents of the catalogue and their versions; pools and named limits are shown as documents, too."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import StrEnum, unique
from typing import Any, Final

import msgspec

from taskyard.core.catalogue.launched import SOURCE
from taskyard.core.catalogue.model import SETTINGS, Document, DocumentKind
from taskyard.lifecycle.catalogue import settings_documents
from taskyard.store.connection import Repo
from taskyard.store.repo.catalogue import DocumentRow, Name, VersionRow
from taskyard.views.launches import last_launches
from taskyard.wire import api

#: How many documents a page has that are shown with all that they say: one may have a megabyte.
WHOLE_MAX: Final = 20
_SETTINGS: Final = frozenset(map(str, SETTINGS))
_LIMIT: Final = str(DocumentKind.LIMIT)


@unique
class Detail(StrEnum):
    """How much of each document is shown."""

    SHORT = "short"
    WHOLE = "whole"  # with what it says
    LAUNCHES = "launches"  # with that, and its last launch or update


def page(
    repo: Repo, kinds: Collection[str], pools: frozenset[str] | None, after: Name, count: int, detail: Detail
) -> tuple[list[api.DocumentView], Name | None]:
    """Show documents of some kinds and pools after a kind and a name; return the last place if there are more."""
    count = count if detail is Detail.SHORT else min(count, WHOLE_MAX)
    rows = repo.catalogue.page(set(kinds) - _SETTINGS, pools, after, count + 1)
    settings = settings_documents(repo) if _SETTINGS & set(kinds) else []
    shown = [one for one in settings if one.kind in kinds and (one.kind, one.name) > after and _is_shown(one, pools)]
    found = sorted([*map(_of_row, rows), *map(_of_settings, shown)], key=lambda one: (one.kind, one.name))
    last = (found[count - 1].kind, found[count - 1].name) if len(found) > count else None
    listed = found[:count]
    if detail is Detail.SHORT:
        return [replace(one, document=None) for one in listed], last
    return (_with_launches(repo, listed, pools) if detail is Detail.LAUNCHES else listed), last


def _with_launches(
    repo: Repo, views: Sequence[api.DocumentView], pools: frozenset[str] | None
) -> list[api.DocumentView]:
    """Add the last launch of each document, or its last update."""
    named = {(view.kind, view.name): _launched(view) for view in views}
    last = last_launches(repo, [one for names in named.values() for one in names], pools)
    return [replace(view, launches=[last[one] for one in named[view.kind, view.name] if one in last]) for view in views]


def _launched(view: api.DocumentView) -> list[Name]:
    """Return what launches of a document are called: those of an inventory are updates of its sources."""
    if view.kind == DocumentKind.INVENTORY:
        sources = (view.document or {}).get("sources", [])
        return [(SOURCE, f"{view.name}/{one['name']}") for one in sources]
    return [(view.kind, view.name)]


def one(repo: Repo, kind: str, name: str, pools: Collection[str] | None) -> api.DocumentView | None:
    """Show a document of some pools; None if there is none."""
    if kind in _SETTINGS:
        found = (one for one in settings_documents(repo) if (one.kind, one.name) == (kind, name))
        return next((_of_settings(one) for one in found if _is_shown(one, pools)), None)
    row = repo.catalogue.read([(kind, name)]).get((kind, name))
    return _of_row(row) if row is not None and (pools is None or row.pool in pools) else None


def versions(
    repo: Repo, kind: str, name: str, pools: Collection[str] | None, before: int, count: int
) -> tuple[list[api.DocumentVersion], int | None]:
    """Show versions of a document before one, the newest first; return the last number if there are more.

    A version is shown to who may see the pool that it belonged to.
    """
    rows = repo.catalogue.versions(kind, name, before, count + 1)
    last = rows[count - 1].version if len(rows) > count else None
    shown = [row for row in rows[:count] if pools is None or row.pool in pools]
    return [_version(row) for row in shown], last


def _version(row: VersionRow) -> api.DocumentVersion:
    said = None if row.body is None else _said(row.body)
    return api.DocumentVersion(row.version, row.pool, row.changed_ms, row.changed_by, said)


def _is_shown(document: Document, pools: Collection[str] | None) -> bool:
    return pools is None or document.kind == _LIMIT or document.pool in pools


def _of_row(row: DocumentRow) -> api.DocumentView:
    return api.DocumentView(row.kind, row.name, row.pool, row.version, row.changed_ms, row.changed_by, _said(row.body))


def _of_settings(document: Document) -> api.DocumentView:
    return api.DocumentView(str(document.kind), document.name, document.pool, 0, None, None, _said(document.body))


def _said(body: str) -> dict[str, Any]:
    return msgspec.json.decode(body, type=dict[str, Any])
