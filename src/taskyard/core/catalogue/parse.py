"""Reads documents of the catalogue. Reading goes on after a fault, so that all faults of all documents are listed.

What a template runs is checked as the graph that a launch of it makes, so that the rules of graphs hold for it, too.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, cast

from taskyard.core.catalogue.model import (
    DOCUMENT_TEXT_MAX,
    DOCUMENTS_MAX,
    REFERENCES_MAX,
    SETTINGS,
    TASKS_MAX,
    TEXT_MAX,
    Definition,
    Document,
    DocumentKind,
    Inventory,
    InventorySource,
    JobTemplate,
    LimitSettings,
    PoolSettings,
    Project,
    Raw,
    Schedule,
    SurveyField,
    SystemJobTemplate,
    WorkflowTemplate,
    project_resource,
    references,
    source_resource,
)
from taskyard.core.catalogue.schema import LEVELS, PLAY_FIELDS, TASK_FIELDS, WORKFLOW_NODE
from taskyard.core.catalogue.survey import check_answer
from taskyard.core.catalogue.updates import field_of, project_payload, source_payload
from taskyard.core.durations import moment_ms, span_ms, span_text
from taskyard.core.graph.errors import Fault, Faults, Path, quoted, shown
from taskyard.core.graph.model import (
    ENV_MAX,
    INPUTS_MAX,
    MUTEXES_MAX,
    VALUES_MAX,
    Allowance,
    GraphDefinition,
    Mutex,
)
from taskyard.core.graph.parse import Context, Place, pools_named, read_graph, secret_pools, urgent_pools
from taskyard.core.graph.payload import SERVER_KINDS, input_labels
from taskyard.core.graph.schema import NODE, survey
from taskyard.core.launch import job_mutexes, system_job_mutexes
from taskyard.core.matching import DEFAULT_POOL, POOL
from taskyard.core.reuse import REUSE_WINDOW_MS
from taskyard.core.structs import canonical_text, defaults, value

#: The label of the task of a template.
JOB: Final = "job"
#: Stands for the task of a launch, in the checks of a workflow; its variables may hold marks of the matrix.
_LAUNCH: Final = "taskyard:launch"
_POOL_DEFAULTS: Final = dict(defaults(PoolSettings))
_SERVER_FIELDS = frozenset(str(kind) for kind in SERVER_KINDS)


@value
class Entry:
    """A document of one request: its place, and what it needs rights for."""

    document: Document
    place: int
    pools: frozenset[str] = frozenset()  # in which its tasks run
    secret_pools: frozenset[str] = frozenset()  # whose secrets they name
    urgent: Mapping[int, frozenset[str]] = {}  # priorities that need a right of their own, with the pools of each


@value
class Reading:
    """The documents that could be read, and every fault of the others."""

    entries: tuple[Entry, ...]
    faults: tuple[Fault, ...] = ()


def read_documents(documents: object) -> Reading:
    """Read the documents of one request."""
    faults = Faults()
    if not isinstance(documents, list) or not 1 <= len(documents) <= DOCUMENTS_MAX:
        faults.add(("documents",), f"must be a list of 1 to {DOCUMENTS_MAX} documents")
        return Reading((), faults.listed())
    surveyed = survey({"documents": documents}, faults)
    if not surveyed.readable:
        return Reading((), faults.listed())
    reader = _Reader(faults, Allowance(TASKS_MAX, values=VALUES_MAX - surveyed.values), sound=not faults.noted)
    entries = [reader.read(document, place) for place, document in enumerate(documents)]
    kept = [entry for entry in entries if entry is not None]
    _refuse_twins(kept, faults)
    if sum(len(entry.document.body) for entry in kept) > TEXT_MAX:
        faults.add(("documents",), f"have more than {TEXT_MAX} characters; apply fewer at once")
    if sum(len({(one.kind, one.name) for one in references(entry.document)}) for entry in kept) > REFERENCES_MAX:
        faults.add(("documents",), f"refer to more than {REFERENCES_MAX} others; apply fewer at once")
    return Reading(tuple(kept), faults.listed())


def stored_document(body: str) -> Document | None:
    """Read a stored document; None if today's rules refuse it."""
    found = read_documents([json.loads(body)])
    return found.entries[0].document if found.entries and not found.faults else None


def digest_of(documents: object) -> str:
    """Return a digest of the documents of a request, which are plain JSON."""
    return sha256(canonical_text(documents).encode()).hexdigest()


def place_of(place: int) -> Path:
    """Return the path of a document in its request."""
    return ("documents", place)


def task_in_pool(task: Raw, pool: str) -> Raw:
    """Return the task of a node with the pool of its document, if it names none and a bot runs it."""
    if any(_is_of_server(one) for one in _holders(task)):
        return task
    if not isinstance(slices := task.get("slices"), list):
        return _in_pool(task, pool)
    return {**task, "slices": [_in_pool(one, pool) if isinstance(one, dict) else one for one in slices]}


def _holders(task: Raw) -> Iterable[object]:
    slices = task.get("slices")
    return (task, *(slices if isinstance(slices, list) else ()))


def _is_of_server(holder: object) -> bool:
    payload = holder.get("payload") if isinstance(holder, Mapping) else None
    return isinstance(payload, dict) and not _SERVER_FIELDS.isdisjoint(payload)


def _in_pool(holder: Raw, pool: str) -> Raw:
    dimensions = holder.get("dimensions", {})
    if not isinstance(dimensions, dict) or POOL in dimensions:
        return holder
    return {**holder, "dimensions": {**dimensions, POOL: pool}}


def _refuse_twins(entries: Iterable[Entry], faults: Faults) -> None:
    seen: dict[tuple[str, str], int] = {}
    for entry in entries:
        document = entry.document
        first = seen.setdefault((document.kind, document.name), entry.place)
        if first != entry.place:
            faults.add(
                (*place_of(entry.place), "name"),
                f"{document.kind} {quoted(document.name)} is described in documents[{first}] too; keep one",
            )


class _Reader:
    """Reads the documents of one request."""

    def __init__(self, faults: Faults, left: Allowance, sound: bool) -> None:
        self.faults = faults
        self.left = left
        self.sound = sound

    def read(self, document: object, place: int) -> Entry | None:
        """Read one document; None if it has a fault."""
        at, before = place_of(place), self.faults.noted
        kind = self._kind(document, at)
        if kind is None or not isinstance(document, dict):
            return None
        found = LEVELS[kind].read(document, at, self.faults)
        found["kind"] = kind
        one = _Document(kind, document, found, at, self)
        definition = one.definition()
        if self.faults.noted > before or definition is None or not self.sound:
            return None  # what is not plain cannot be written down
        body = _body(document, kind)
        if len(body) > DOCUMENT_TEXT_MAX:
            self.faults.add(at, f"has {len(body)} characters; at most {DOCUMENT_TEXT_MAX}")
            return None
        return one.entry(definition, body, place)

    def _kind(self, document: object, at: Path) -> DocumentKind | None:
        kinds = {str(kind): kind for kind in DocumentKind}
        if not isinstance(document, dict):
            self.faults.wrong(at, "an object with kind, name and the fields of its kind", document)
            return None
        named = document.get("kind")
        if isinstance(named, str) and named in kinds:
            return kinds[named]
        if "kind" not in document:
            self.faults.add(at, f'needs the field "kind", one of {", ".join(kinds)}')
        else:
            meant = self.faults.meant(named, kinds) if isinstance(named, str) else ""
            self.faults.add((*at, "kind"), f"must be one of {', '.join(kinds)}; got {shown(named)}{meant}")
        return None


class _Document:
    """One document: as it was written, and what its table has read of it."""

    def __init__(
        self, kind: DocumentKind, raw: dict[str, Any], found: dict[str, Any], at: Path, reader: _Reader
    ) -> None:
        self.kind = kind
        self.raw = raw
        self.found = found
        self.at = at
        self.faults = reader.faults
        self.reader = reader
        self.pool: str = found.get("pool", DEFAULT_POOL)
        self.graph = GraphDefinition()  # what a launch of it runs

    def definition(self) -> Definition | None:
        """Make the definition; None, or one that must not be used, after a fault."""
        before = self.faults.noted
        made = _MAKERS[self.kind](self)
        return made if self.faults.noted == before else None

    def entry(self, definition: Definition, body: str, place: int) -> Entry:
        """Put together what is known of the document."""
        name = self.found["name"]
        if self.kind in SETTINGS:
            return Entry(settings_document(name, cast("PoolSettings | LimitSettings", definition)), place)
        document = Document(self.kind, name, definition, body, self.pool, self.found.get("description", ""))
        tasks = list(self.graph.tasks.values())
        return Entry(document, place, pools_named(tasks), secret_pools(tasks), urgent_pools(tasks))

    # Parts.

    def texts(self, *names: str) -> dict[str, Any]:
        """Return the fields as the tables have read them, as far as they are there."""
        return {name: self.found[name] for name in names if name in self.found}

    def written(self, *names: str) -> dict[str, Any]:
        """Return the fields as they were written, as far as they are there."""
        return {name: self.raw[name] for name in names if name in self.raw}

    def task(self) -> dict[str, object]:
        """Return the fields of the task, with the pool of the document."""
        fields = self.written(*TASK_FIELDS)
        dimensions = fields.get("dimensions", {})
        if isinstance(dimensions, dict):
            if POOL in dimensions:
                self.faults.add((*self.at, "dimensions", POOL), "is that of the document; give it in its field pool")
            fields["dimensions"] = {**dimensions, POOL: self.pool}
        return fields

    def survey(self) -> tuple[SurveyField, ...]:
        """Return the survey, and note what is wrong with its entries."""
        raw, seen, fields = self.raw.get("survey"), set[str](), []
        read = self.found.get("survey", ())
        if not isinstance(raw, list) or len(read) < len(raw):
            return ()
        for place, (entry, written) in enumerate(zip(read, raw, strict=True)):
            at = (*self.at, "survey", place)
            if not isinstance(written, dict) or not {"name", "type"} <= entry.keys():
                continue
            entry["choices"] = tuple(entry.get("choices", ()))
            field = SurveyField(**entry)
            _check_survey_field(field, at, self.faults)
            if field.name in seen:
                self.faults.add((*at, "name"), f"repeats the variable {quoted(field.name)}; name it once")
            seen.add(field.name)
            fields.append(field)
        written_variables = self.raw.get("variables")
        variables = written_variables if isinstance(written_variables, dict) else {}
        for field in fields:
            if field.name in variables:
                check_answer(field, variables[field.name], (*self.at, "variables", field.name), self.faults)
        return tuple(fields)

    def check_graph(self, tasks: Mapping[str, object], move: Callable[[Path], Path]) -> None:
        """Check the tasks of a launch as a graph; `move` says where a fault is in the document."""
        faults = Faults()
        context = Context(faults, self.reader.left, "taskyard", "", None, self.reader.sound)
        self.graph, _ = read_graph({"tasks": dict(tasks)}, Place(), context)
        self.faults.take(faults, lambda at: (*self.at, *move(at)))


# Each kind: what its table cannot say, and its definition.


def _project(one: _Document) -> Definition:
    project = Project(
        one.found.get("git", ""),
        **one.texts("branch", "update_on_launch"),
        cache_ms=one.found.get("update_cache_timeout", 0),
        **one.written("secrets", "timeout"),
        task=one.task(),
    )
    if isinstance(project.secrets, dict):
        _check_update(one, project_payload(project), (), field_of)
    return project


def _check_update(one: _Document, payload: dict[str, Any], links: Sequence[str], field: Callable[[Path], Path]) -> None:
    """Check the task that an update is; `field` says which field of the document a part of the payload comes from."""
    before = one.graph

    def move(path: Path) -> Path:
        rest = _in_template(path, flat=False)
        return field(rest[1:]) if rest[:1] == ("payload",) else rest

    one.check_graph(_after_links(links, {"task": {**one.task(), "payload": payload}}), move)
    if JOB in one.graph.tasks:
        one.graph = GraphDefinition(tasks={**before.tasks, str(len(before.tasks)): one.graph.tasks[JOB]})


def _after_links(links: Sequence[str], node: dict[str, object]) -> dict[str, object]:
    """Return a task behind links, as it is in the graph of a launch."""
    link = {"task": {"payload": {"noop": True}}}
    return {**dict.fromkeys(links, link), JOB: {**node, "requires": [*links]}}


def _inventory(one: _Document) -> Definition:
    sources = tuple(_sources(one))
    if not sources:
        one.task()
    return Inventory(
        _by_name(one.raw.get("hosts", {})), _by_name(one.raw.get("groups", {})), one.raw.get("vars", {}), sources,
        one.task(),
    )  # fmt: skip


def _by_name(written: object) -> dict[str, Raw]:
    """Return hosts or groups as objects by name."""
    if isinstance(written, list):
        return {str(name): {} for name in written}
    return {name: entry or {} for name, entry in written.items()} if isinstance(written, dict) else {}


def _sources(one: _Document) -> Iterable[InventorySource]:
    seen: set[str] = set()
    raw = one.raw.get("sources")
    for place, source in enumerate(raw if isinstance(raw, list) else ()):
        if not isinstance(source, dict) or not isinstance(name := source.get("name"), str):
            continue
        at: Path = ("sources", place)
        if name in seen:
            one.faults.add((*one.at, *at, "name"), f"repeats the source {quoted(name)}; name it once")
        seen.add(name)
        if ("plugin" in source) == ("project" in source or "path" in source):
            one.faults.add((*one.at, *at), 'needs either "plugin", or "project" and "path"')
        elif "plugin" not in source and not {"project", "path"} <= source.keys():
            one.faults.add((*one.at, *at), 'needs both "project" and "path"')
        found = _source(name, source)
        if isinstance(found.path or found.plugin, str | dict) and isinstance(source.get("secrets", {}), dict):
            _check_source(one, found, at)
        yield found


def _check_source(one: _Document, source: InventorySource, at: Path) -> None:
    links = [project_resource(source.project)] if isinstance(source.project, str) else []
    payload = source_payload(source)
    _check_update(one, payload, links, lambda path: (*at, *field_of(path, source)))


def _source(name: str, source: Raw) -> InventorySource:
    kept = {
        key: source[key]
        for key in ("project", "path", "plugin", "update_on_launch", "secrets", "timeout")
        if key in source
    }
    cache = source.get("update_cache_timeout")
    made = cast("Callable[..., InventorySource]", InventorySource)
    return made(name, cache_ms=(span_ms(cache) or 0) if isinstance(cache, str) else 0, **kept)


def _job_template(one: _Document) -> Definition:
    play = one.written("playbook", *PLAY_FIELDS) if "playbook" in one.raw else None
    payload = one.raw.get("payload")
    if play is None and "payload" not in one.raw:
        one.faults.add(one.at, 'says nothing to run; add "playbook" or "payload"')
    if payload is not None:
        _refuse_beside_payload(one)
    elif "project" not in one.raw and play is not None:
        one.faults.add(one.at, 'needs the field "project", which has the playbook')
    if payload is None:
        payload = {"ansible": play or {}, **one.written("secrets", "timeout")}
    node = {**one.written("reruns"), "task": {**one.task(), "payload": payload}}
    if play is not None or "payload" in one.raw:
        _check_job(one, node, payload, flat=play is not None)
    return JobTemplate(
        **one.texts("project", "inventory", "allow_simultaneous"),
        play=play,
        **one.written("payload", "secrets", "timeout", "reruns", "variables"),
        task=one.task(),
        survey=one.survey(),
    )


def _refuse_beside_payload(one: _Document) -> None:
    for name in ("playbook", *PLAY_FIELDS):
        if name in one.raw:
            one.faults.add((*one.at, name), "belongs to a playbook; keep either playbook or payload")
    for name in ("secrets", "timeout"):
        if name in one.raw:
            one.faults.add((*one.at, name), "belongs inside payload; move it there")


def _check_job(one: _Document, node: dict[str, object], payload: object, flat: bool) -> None:
    """Check the task of a template, after the links to what it uses."""
    project, inventory = one.raw.get("project"), one.raw.get("inventory")
    named = project if isinstance(project, str) else None
    _leave_room(one, job_mutexes(named, inventory if isinstance(inventory, str) else None, one.found.get("name", "")))
    if isinstance(payload, dict) and not flat:
        _leave_room_in_payload(one, payload, has_project=named is not None)
    links = [project_resource(project)] if isinstance(project, str) else []
    if isinstance(inventory, str):
        of_inventory = source_resource(inventory, "")
        links += sorted({label for _, label in input_labels(payload) if label.startswith(of_inventory)})
    one.check_graph(_after_links(links, node), lambda path: _in_template(path, flat))


def _leave_room(one: _Document, launched: Iterable[Mutex]) -> None:
    """Note more mutexes than fit beside those of a launch; one that a launch has anyway takes no room of its own."""
    own = one.raw.get("mutexes")
    if not isinstance(own, list):
        return
    keys = {mutex.key for mutex in launched}
    more = [mutex for mutex in own if not isinstance(mutex, dict) or mutex.get("key") not in keys]
    _check_room(one, ("mutexes",), len(more), len(keys), MUTEXES_MAX)


def _leave_room_in_payload(one: _Document, payload: Raw, *, has_project: bool) -> None:
    """Note what would not fit into a payload once a launch has added the files of the project and its variables."""
    inputs, env = payload.get("inputs"), payload.get("env")
    if has_project and isinstance(inputs, list):
        _check_room(one, ("payload", "inputs"), len(inputs), 1, INPUTS_MAX)
    if isinstance(env, dict):
        _check_room(one, ("payload", "env"), len(env), 1, ENV_MAX)


def _check_room(one: _Document, at: Path, own: int, added: int, most: int) -> None:
    if most - added < own <= most:  # more than that is a fault of its own
        left = most - added
        one.faults.add((*one.at, *at), f"holds {own}, and each launch adds {added} of its own; keep at most {left}")


def _in_template(path: Path, flat: bool) -> Path:
    """Return where a fault of the task of a graph is in its template; `flat`: the payload was made of its fields."""
    rest = path[2:] if path[:2] == ("tasks", JOB) else ()
    rest = rest[1:] if rest[:1] == ("task",) else rest
    if flat and rest[:2] == ("payload", "ansible"):
        return rest[2:]
    return rest[1:] if flat and rest[:1] == ("payload",) else rest


def _workflow_template(one: _Document) -> Definition:
    nodes = one.raw.get("nodes")
    if isinstance(nodes, dict):
        if not nodes:
            one.faults.add((*one.at, "nodes"), "must hold a node at least")
        tasks = {label: _node(one, label, node) for label, node in nodes.items()}
        one.check_graph(tasks, lambda path: ("nodes", *path[1:]) if path[:1] == ("tasks",) else path)
    return WorkflowTemplate(
        nodes if isinstance(nodes, dict) else {},
        **one.texts("allow_simultaneous"),
        **one.written("variables"),
        survey=one.survey(),
    )


def _node(one: _Document, label: str, node: object) -> object:
    """Return a node as that of a graph: a launch is a task that takes its variables."""
    at = (*one.at, "nodes", label)
    WORKFLOW_NODE.read(node, at, one.faults)
    if not isinstance(node, dict):
        return {"task": {"payload": {"noop": True}}}
    known = {name: node[name] for name in node if NODE.holds(name)}
    if ("task" in node) == ("template" in node):
        one.faults.add(at, 'needs either "template" or "task"')
    if "variables" in node and "template" not in node:
        one.faults.add((*at, "variables"), "belongs to a template; a task has its own payload")
    if isinstance(node.get("task"), dict):
        return {**known, "task": task_in_pool(node["task"], one.pool)}
    launch = {"python": _LAUNCH, "args": {"variables": node.get("variables", {})}}
    return {**known, "task": {"dimensions": {POOL: one.pool}, "payload": launch}}


def _system_job_template(one: _Document) -> Definition:
    task = one.task()
    payload = one.raw.get("payload")
    node = {"task": {**task, "payload": payload}}
    if "payload" in one.raw:
        one.check_graph({JOB: node}, lambda path: _in_template(path, flat=False))
        _leave_room(one, system_job_mutexes())
        _leave_room_in_payload(one, payload if isinstance(payload, dict) else {}, has_project=False)
    return SystemJobTemplate(one.raw.get("payload", {}), task=task, **one.written("variables"), survey=one.survey())


def _schedule(one: _Document) -> Definition:
    if ("cron" in one.raw) == ("rrule" in one.raw):
        one.faults.add(one.at, 'needs either "cron" or "rrule"')
    if "rrule" in one.raw and "start" not in one.raw:
        one.faults.add((*one.at, "rrule"), 'needs "start": its steps and its time of day count from there')
    start = one.found.get("start")
    if isinstance(start, str) and moment_ms(start) is None:
        one.faults.add((*one.at, "start"), f"must be an RFC 3339 time with its zone; got {shown(start)}")
    fields = one.texts("cron", "rrule", "timezone", "start", "missed", "overlap", "enabled")
    return Schedule(one.found.get("template", ""), **fields, **one.written("variables"))


def _pool(one: _Document) -> Definition:
    if "capacity" in one.raw and one.raw.get("from_bots") is True:
        one.faults.add((*one.at, "capacity"), "cannot be a number beside from_bots; keep one of them")
    if one.raw.get("from_bots") is not True:
        for name in ("unit", "adjustment"):
            if one.found.get(name, _POOL_DEFAULTS[name]) != _POOL_DEFAULTS[name]:
                one.faults.add((*one.at, name), "is about a capacity from bots; add from_bots: true")
    window_ms = one.found.get("reuse_window", REUSE_WINDOW_MS)
    fields = one.texts("capacity", "from_bots", "unit", "adjustment", "reuse_shared", "external")
    return PoolSettings(**fields, reuse_window_ms=window_ms)


def _limit(one: _Document) -> Definition:
    return LimitSettings(one.found.get("total", 0))


_MAKERS: Final[Mapping[DocumentKind, Callable[[_Document], Definition]]] = {
    DocumentKind.PROJECT: _project,
    DocumentKind.INVENTORY: _inventory,
    DocumentKind.JOB_TEMPLATE: _job_template,
    DocumentKind.WORKFLOW_TEMPLATE: _workflow_template,
    DocumentKind.SYSTEM_JOB_TEMPLATE: _system_job_template,
    DocumentKind.SCHEDULE: _schedule,
    DocumentKind.POOL: _pool,
    DocumentKind.LIMIT: _limit,
}


def _check_survey_field(field: SurveyField, at: Path, faults: Faults) -> None:
    """Note what does not go together in an entry of a survey."""
    if field.min is not None and field.max is not None and field.min > field.max:
        faults.add((*at, "max"), f"must be at least min, {field.min:g}")
    if field.type == "choice" and not field.choices:
        faults.add(at, 'needs the field "choices"')
    if field.choices and field.type not in ("choice", "list"):
        faults.add((*at, "choices"), f"belongs to a choice or a list; this takes {field.type}")
    for name, bound in (("min", field.min), ("max", field.max)):
        if bound is not None and field.type in ("boolean", "choice"):
            faults.add((*at, name), f"means nothing to a {field.type}; remove it")
    if field.default is not None:
        check_answer(field, field.default, (*at, "default"), faults)


# The stored form: the fields in the order of the table, without those that say what holds anyway.


def _body(document: Raw, kind: DocumentKind) -> str:
    kept = {
        field.name: document[field.name]
        for field in LEVELS[kind].fields
        if field.name in document and not _is_default(document[field.name], field.default)
    }
    return _text({"kind": str(kind), **kept})


def _is_default(written: object, default: object) -> bool:
    if default == ():
        return written in ([], {})
    return type(written) is type(default) and written == default


def settings_document(name: str, settings: PoolSettings | LimitSettings) -> Document:
    """Return settings as the document that describes them; equal settings have equal bodies."""
    fields: dict[str, object]
    if isinstance(settings, LimitSettings):
        kind, pool, fields = DocumentKind.LIMIT, "", {"total": settings.total}
    else:
        kind, pool = DocumentKind.POOL, name
        fields = {"capacity": settings.capacity} if settings.capacity is not None else {}
        fields |= {"from_bots": settings.from_bots, "unit": str(settings.unit), "adjustment": settings.adjustment}
        fields |= {"reuse_window": span_text(settings.reuse_window_ms), "reuse_shared": settings.reuse_shared}
        fields |= {"external": settings.external}
    return Document(kind, name, settings, _body({"name": name, **fields}, kind), pool)


_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
