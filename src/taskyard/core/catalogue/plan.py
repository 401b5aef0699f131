"""What applying documents changes: which are new, changed or the same, and whether all that they refer to is there."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, unique

from taskyard.core.catalogue.model import (
    SETTINGS,
    TEMPLATE,
    TEMPLATES,
    Document,
    DocumentKind,
    JobTemplate,
    Reference,
    Schedule,
    SurveyField,
    SystemJobTemplate,
    WorkflowTemplate,
    references,
)
from taskyard.core.catalogue.parse import Entry, place_of, stored_document
from taskyard.core.catalogue.survey import answer, check_answer
from taskyard.core.graph.errors import Fault, Faults, Path, quoted
from taskyard.core.graph.model import Edge
from taskyard.core.graph.parse import cycle_text, cycles
from taskyard.core.graph.scalars import is_mark
from taskyard.core.structs import value

#: Of a document: its kind and its name.
Name = tuple[str, str]


@unique
class Action(StrEnum):
    """What applying does to a document."""

    CREATE = "create"
    CHANGE = "change"
    UNCHANGED = "unchanged"


@value
class Rights:
    """The pools in which a caller holds rights about documents; None stands for all."""

    change: frozenset[str] | None = None
    read: frozenset[str] | None = None
    submit: frozenset[str] | None = None

    def may_read(self, pool: str) -> bool:
        """Whether the caller may know of the documents of a pool: who may change them may."""
        return _holds(self.read, pool) or self.may_change(pool)

    def may_change(self, pool: str) -> bool:
        """Whether the caller may change the documents of a pool."""
        return _holds(self.change, pool)

    def may_submit(self, pool: str) -> bool:
        """Whether the caller may launch the templates of a pool."""
        return _holds(self.submit, pool)


def _holds(pools: frozenset[str] | None, pool: str) -> bool:
    return pools is None or pool in pools


@value
class Stored:
    """A document that is stored."""

    pool: str
    version: int
    body: str


@value
class Facts:
    """What is stored, as far as it concerns some documents."""

    documents: Mapping[Name, Stored]  # those that are applied, have the name of one, or that one refers to
    last_versions: Mapping[Name, int] = {}  # of those that are applied, deleted ones too
    nested: Sequence[tuple[str, str, str]] = ()  # workflow templates, their pools, and others that they launch


@value
class Change:
    """What becomes of one document."""

    document: Document
    action: Action
    version: int  # after it
    refers_to: tuple[Name, ...] = ()


@value
class Plan:
    """What applying changes, in the order of the request, or the faults because of which nothing may change."""

    changes: tuple[Change, ...]
    faults: tuple[Fault, ...] = ()


def names_of(entries: Iterable[Entry]) -> frozenset[Name]:
    """Return the documents that `Facts` have to be about."""
    found: set[Name] = set()
    for entry in entries:
        document = entry.document
        found.add((document.kind, document.name))
        if document.kind in TEMPLATES:
            found.update((str(kind), document.name) for kind in TEMPLATES)
        for one in references(document):
            found.update((kind, one.name) for kind in _kinds_of(one))
    return frozenset(found)


def plan(entries: Sequence[Entry], facts: Facts, rights: Rights) -> Plan:
    """Compare documents with what is stored."""
    faults = Faults()
    applied = {(str(entry.document.kind), entry.document.name): entry.document for entry in entries}
    catalogue = _Catalogue(applied, facts, rights)
    changes = []
    for entry in entries:
        _check_owner(entry, facts, rights, faults)
        _check_name(entry, catalogue, faults)
        refers_to = tuple(_resolve(entry, catalogue, faults))
        changes.append(_change(entry.document, facts, refers_to))
    if not faults.noted:
        _refuse_recursion(entries, changes, facts, rights, faults)
    return Plan(() if faults.noted else tuple(changes), faults.listed())


@dataclass(slots=True)
class _Catalogue:
    """What there is once the documents are applied, as far as the caller may know of it."""

    applied: Mapping[Name, Document]
    facts: Facts
    rights: Rights
    _read: dict[Name, Document | None] = field(default_factory=dict)  # stored documents that were read already

    def pool_of(self, name: Name) -> str | None:
        """Return the pool of a document; None if there is none that the caller may know of."""
        if name in self.applied:
            return self.applied[name].pool
        stored = self.facts.documents.get(name)
        return stored.pool if stored is not None and self.rights.may_read(stored.pool) else None

    def document(self, name: Name) -> Document | None:
        """Return a document that there is, if today's rules accept it."""
        if name in self.applied:
            return self.applied[name]
        if name not in self._read:
            self._read[name] = stored_document(self.facts.documents[name].body)
        return self._read[name]

    def names(self, kinds: Collection[str]) -> list[str]:
        """Return the names of some kinds that the caller may know of, to suggest one."""
        known = (*self.applied, *self.facts.documents)
        return sorted({name for kind, name in known if kind in kinds and self.pool_of((kind, name)) is not None})


def _change(document: Document, facts: Facts, refers_to: tuple[Name, ...]) -> Change:
    name = (str(document.kind), document.name)
    stored = facts.documents.get(name)
    if stored is None:
        return Change(document, Action.CREATE, facts.last_versions.get(name, 0) + 1, refers_to)
    if (stored.body, stored.pool) == (document.body, document.pool):
        return Change(document, Action.UNCHANGED, stored.version, refers_to)
    return Change(document, Action.CHANGE, stored.version + 1, refers_to)


def _check_owner(entry: Entry, facts: Facts, rights: Rights, faults: Faults) -> None:
    """Note a document that belongs to a pool whose documents the caller may not change.

    Settings cannot belong to another pool than the request says.
    """
    document = entry.document
    if document.kind in SETTINGS:
        return
    stored = facts.documents.get((document.kind, document.name))
    if stored is not None and not rights.may_change(stored.pool):
        faults.add((*place_of(entry.place), "name"), "is taken in a pool whose documents you may not change; rename it")


def _check_name(entry: Entry, catalogue: _Catalogue, faults: Faults) -> None:
    """Note a template with the name of a template of another kind: a launch gives only the name."""
    document = entry.document
    if document.kind not in TEMPLATES:
        return
    for kind in TEMPLATES:
        name = (str(kind), document.name)
        if kind is not document.kind and (name in catalogue.applied or name in catalogue.facts.documents):
            faults.add((*place_of(entry.place), "name"), f"is that of a {kind} too; rename one of them")


def _kinds_of(reference: Reference) -> tuple[str, ...]:
    return tuple(map(str, TEMPLATES)) if reference.kind == TEMPLATE else (reference.kind,)


def _resolve(entry: Entry, catalogue: _Catalogue, faults: Faults) -> Iterator[Name]:
    """Yield what a document refers to, each once; note what is not there, or what the caller may not use."""
    seen: set[Name] = set()
    for one in references(entry.document):
        at = (*place_of(entry.place), *one.path)
        kinds = _kinds_of(one)
        found = next((kind for kind in kinds if catalogue.pool_of((kind, one.name)) is not None), None)
        if found is None:
            meant = faults.meant(one.name, catalogue.names(kinds)) or "; apply it before this, or with it"
            faults.add(at, f"there is no {one.kind} {quoted(one.name)}{meant}")
            continue
        name = (found, one.name)
        pool = catalogue.pool_of(name)
        if one.kind == TEMPLATE:
            if pool is not None and not catalogue.rights.may_submit(pool):
                faults.add(at, f"is launched with this, for which you need pool:{pool}:submit")
            _check_variables(entry.document, one, name, catalogue, faults, place_of(entry.place))
        if name not in seen:
            seen.add(name)
            yield name


def _check_variables(
    document: Document, reference: Reference, name: Name, catalogue: _Catalogue, faults: Faults, at: Path
) -> None:
    """Note variables that do not answer the survey of the template for which they are."""
    target = catalogue.document(name)
    if target is None:
        return
    match document.definition:
        case Schedule(variables=variables):
            survey, own = survey_of(target)
            answer(survey, own, variables, (*at, "variables"), faults)
        case WorkflowTemplate(nodes=nodes):
            fields = {one.name: one for one in survey_of(target)[0]}
            label = reference.path[1]
            given = nodes[str(label)].get("variables", {})
            for variable, item in given.items() if isinstance(given, Mapping) else ():
                if variable in fields and not is_mark(item):
                    check_answer(fields[variable], item, (*at, "nodes", label, "variables", variable), faults)


def survey_of(document: Document) -> tuple[tuple[SurveyField, ...], Mapping[str, object]]:
    """Return the survey and the variables of a template."""
    match document.definition:
        case JobTemplate() | WorkflowTemplate() | SystemJobTemplate() as template:
            return template.survey, template.variables
    return (), {}


def _refuse_recursion(
    entries: Sequence[Entry], changes: Sequence[Change], facts: Facts, rights: Rights, faults: Faults
) -> None:
    """Note workflow templates that would launch themselves through others."""
    workflow = str(DocumentKind.WORKFLOW_TEMPLATE)
    inner: dict[str, list[str]] = {}
    applied = {entry.document.name: entry for entry in entries if entry.document.kind == workflow}
    known = set(applied)
    for name, pool, other in facts.nested:
        if name not in applied:
            inner.setdefault(name, []).append(other)
            known |= {name} if rights.may_read(pool) else set()
    for change in changes:
        if change.document.kind == workflow:
            inner[change.document.name] = [name for kind, name in change.refers_to if kind == workflow]
    edges = {name: tuple(map(Edge, others)) for name, others in inner.items()}
    for cycle in cycles(edges):
        first = next(place for place, name in enumerate(cycle) if name in applied)
        cycle = (*cycle[first:], *cycle[:first])  # noqa: PLW2901 - the same cycle, from a document of the request
        entry, after = applied[cycle[0]], cycle[1 % len(cycle)]
        nodes = entry.document.definition.nodes if isinstance(entry.document.definition, WorkflowTemplate) else {}
        label = next(label for label, node in nodes.items() if node.get("template") == after)
        shown = tuple(name if name in known else "..." for name in cycle)
        faults.add(
            (*place_of(entry.place), "nodes", label, "template"),
            f"makes a workflow that launches itself: {cycle_text(shown)}; remove one launch",
        )
