"""The graphs that launches make: of a template with variables, of the update of a resource, of an ad-hoc command.

Such a graph has a link for each resource that is used, and one task that does the work. Which update a link stands for
is decided when the graph is stored (`core/launch.py`). The catalogue that is read here does not change meanwhile.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from taskyard.core.catalogue.model import (
    TEMPLATES,
    Document,
    DocumentKind,
    Inventory,
    JobTemplate,
    Project,
    Raw,
    SystemJobTemplate,
    WorkflowTemplate,
    content_digest,
    project_resource,
    source_resource,
)
from taskyard.core.catalogue.parse import JOB, task_in_pool
from taskyard.core.catalogue.survey import answers, read_texts
from taskyard.core.catalogue.updates import project_payload, source_payload, surrounded
from taskyard.core.graph.errors import Fault, Faults, quoted
from taskyard.core.graph.model import ENV_VALUE_MAX, Mutex
from taskyard.core.graph.payload import SERVER_KINDS
from taskyard.core.graph.schema import survey
from taskyard.core.launch import (
    LINK_IMPOSSIBLE,
    SYSTEM_JOB_WEIGHT,
    Resource,
    ad_hoc_mutexes,
    inventory_update_mutexes,
    job_mutexes,
    play_weight,
    project_update_mutexes,
    system_job_mutexes,
    workflow_mutexes,
)
from taskyard.core.matching import POOL
from taskyard.core.states import Kind
from taskyard.core.structs import struct_replace, value

#: The label of the task of a workflow.
WORKFLOW: Final = "workflow"
#: The kinds of launches beside templates: updates, and commands that are not stored.
SOURCE: Final = "source"
AD_HOC: Final = "ad_hoc"
#: The variable with the variables of a launch, as JSON, for tasks that are no plays.
VARIABLES: Final = "TASKYARD_VARIABLES"
#: The file with the hosts of a source, which its update leaves.
HOSTS_FILE: Final = "inventory.json"
#: Workflows in workflows.
DEPTH_MAX: Final = 8
_SERVER_FIELDS = frozenset(str(kind) for kind in SERVER_KINDS)

#: Reads a document of the catalogue; None if there is none.
Find = Callable[[DocumentKind, str], Document | None]


@value
class Options:
    """What a launch is given beside variables."""

    limit: str | None = None  # hosts of a play
    check: bool | None = None  # of a play: change nothing
    module: str | None = None  # of an ad-hoc command
    module_args: str | None = None


@value
class Wanted:
    """What is launched: a template, a resource to update, or an ad-hoc command."""

    kind: str  # of `DocumentKind`, or SOURCE or AD_HOC
    name: str  # INVENTORY/SOURCE of a source; the inventory of an ad-hoc command
    variables: Raw = {}
    options: Options = Options()
    open_ended: bool = False  # variables may have names that the template does not know, as those of a workflow
    texts: Mapping[str, str] = {}  # variables as people type them; the survey says what each means


@value
class LaunchedGraph:
    """The graph of a launch, before it is known which updates it needs."""

    kind: str
    name: str
    pool: str
    version: int
    document: Mapping[str, Any]  # of a graph; a no-op stands in place of each link
    label: str  # of the task that does the work
    links: Mapping[str, str]  # the resource of each link, by label
    resources: tuple[Resource, ...] = ()  # that it uses
    updates: Resource | None = None  # the resource that it updates itself
    variables: Raw = {}  # as they were given
    pools: frozenset[str] = frozenset()  # of everything that is launched inside it


@value
class Launched:
    """A launch: its graph, and those of updates that it may need. Or the faults of what was asked for."""

    graph: LaunchedGraph | None = None
    updates: Mapping[str, LaunchedGraph] = {}  # by resource, a project before sources that come from it
    used: frozenset[tuple[DocumentKind, str]] = frozenset()  # documents on which all this depends
    faults: tuple[Fault, ...] = ()


def launched(
    wanted: Wanted,
    find: Find,
    versions: Callable[[DocumentKind, str], int],
    pools_in_forks: Collection[str] = frozenset(),
) -> Launched:
    """Make the graphs of a launch; in some pools, tasks weigh as many forks as they use."""
    maker = _Maker(find, versions, pools_in_forks)
    graph = maker.make(wanted)
    if maker.faults.noted or graph is None:
        return Launched(faults=maker.faults.listed(), used=frozenset(maker.used))
    updates = {one.name: maker.update(one) for one in _by_dependency(graph.resources)}
    made = {name: one for name, one in updates.items() if one is not None}
    whole = len(made) == len(updates)
    return Launched(graph if whole else None, made, frozenset(maker.used), maker.faults.listed())


def template_kind(find: Find, name: str) -> DocumentKind | None:
    """Return the kind of the template that is called so: templates share one set of names."""
    return next((kind for kind in TEMPLATES if find(kind, name) is not None), None)


def _by_dependency(resources: Iterable[Resource]) -> list[Resource]:
    """List resources once each, the projects of sources first."""
    listed = list(resources)
    found = {one.comes_from.name: one.comes_from for one in listed if one.comes_from is not None}
    found |= {one.name: one for one in listed if one.comes_from is None}
    found |= {one.name: one for one in listed if one.comes_from is not None}
    return list(found.values())


class _Maker:
    """Makes the graphs of one launch, and notes which documents it read."""

    def __init__(
        self, find: Find, versions: Callable[[DocumentKind, str], int], pools_in_forks: Collection[str]
    ) -> None:
        self._pools_in_forks = pools_in_forks
        self.faults = Faults()
        self.used: set[tuple[DocumentKind, str]] = set()
        self._find = find
        self._versions = versions

    def make(self, wanted: Wanted) -> LaunchedGraph | None:
        """Make the graph itself."""
        if wanted.kind == AD_HOC:
            variables = {**wanted.variables, **read_texts((), wanted.texts)}
            return (
                self._ad_hoc(struct_replace(wanted, variables=variables, texts={}))
                if self._are_plain(variables)
                else None
            )
        if wanted.kind == SOURCE:
            inventory, _, source = wanted.name.partition("/")
            found = self._source(inventory, source)
            return None if found is None else self.update(found)
        document = self._document(DocumentKind(wanted.kind), wanted.name, ("name",))
        if document is None:
            return None
        fields = getattr(document.definition, "survey", ())
        variables = {**wanted.variables, **read_texts(fields, wanted.texts)}
        if not self._are_plain(variables):
            return None
        return self._of_document(document, struct_replace(wanted, variables=variables, texts={}))

    def _are_plain(self, variables: Raw) -> bool:
        return survey({"variables": dict(variables)}, self.faults).readable and not self.faults.noted

    def _of_document(self, document: Document, wanted: Wanted) -> LaunchedGraph | None:
        match document.definition:
            case Project():
                resource = self._project(wanted.name)
                return None if resource is None else self.update(resource)
            case JobTemplate() as template:
                return self._job(document, template, wanted)
            case SystemJobTemplate() as template:
                return self._system_job(document, template, wanted)
            case WorkflowTemplate() as template:
                return self._workflow(document, template, wanted)
        self.faults.add(("kind",), f"a {wanted.kind} cannot be launched")
        return None

    def update(self, resource: Resource) -> LaunchedGraph | None:
        """Make the graph that updates a resource."""
        what, _, name = resource.name.partition(":")
        if what == DocumentKind.PROJECT:
            return self._project_update(resource, name)
        inventory, _, source = name.partition("/")
        return self._source_update(resource, inventory, source)

    # Templates.

    def _job(self, document: Document, template: JobTemplate, wanted: Wanted) -> LaunchedGraph | None:
        variables = self._answers(template, wanted)
        resources = self._resources(template.project, template.inventory)
        inventory = self._inventory(template.inventory)
        if self.faults.noted:
            return None
        payload = template.payload or {}
        if template.play is not None:
            payload = _play_payload(template, inventory, template.inventory, variables, wanted.options)
        else:
            payload = _with_files(template.project, _with_variables(payload, variables, self.faults))
            self._refuse_options(wanted.options)
        node: dict[str, Any] = {"task": {**template.task, "payload": payload}}
        if template.reruns is not None:
            node["reruns"] = template.reruns
        if template.play is not None:
            self._weigh(document, node, play_weight(_forks_of(template.play), _count_hosts(inventory)))
        mutexes = job_mutexes(template.project, template.inventory, document.name, template.allow_simultaneous)
        return self._graph(document, JOB, node, mutexes, resources, wanted)

    def _system_job(self, document: Document, template: SystemJobTemplate, wanted: Wanted) -> LaunchedGraph | None:
        variables = self._answers(template, wanted)
        self._refuse_options(wanted.options)
        payload = _with_variables(template.payload, variables, self.faults)
        node: dict[str, Any] = {"task": {**template.task, "payload": payload}}
        self._weigh(document, node, SYSTEM_JOB_WEIGHT)
        return self._graph(document, JOB, node, system_job_mutexes(), (), wanted)

    def _workflow(self, document: Document, template: WorkflowTemplate, wanted: Wanted) -> LaunchedGraph | None:
        variables = self._answers(template, wanted)
        self._refuse_options(wanted.options)
        pools = self._pools_inside(document.name, template, (document.name,))
        nodes = {label: self._node(document, node, variables) for label, node in template.nodes.items()}
        mutexes = workflow_mutexes(document.name, template.allow_simultaneous)
        node = {"task": {"payload": {"graph": {"tasks": nodes}}}}
        return self._graph(document, WORKFLOW, node, mutexes, (), wanted, pools | {document.pool})

    def _node(self, document: Document, node: Raw, variables: Raw) -> dict[str, Any]:
        """Return a node of a workflow as that of a graph: a template becomes a task that launches it."""
        known = {name: item for name, item in node.items() if name not in ("template", "variables", "task")}
        if "template" in node:
            launch = {"template": node["template"], "variables": node.get("variables", {}), "over": variables}
            return {**known, "task": {"payload": {Kind.LAUNCH.text: launch}}}
        task = task_in_pool(node.get("task", {}), document.pool)  # type: ignore[arg-type]
        return {**known, "task": _task_with_variables(task, variables, self.faults)}

    def _pools_inside(self, name: str, template: WorkflowTemplate, around: tuple[str, ...]) -> frozenset[str]:
        """Return the pools of all templates that a workflow launches; note templates that contain themselves."""
        pools: set[str] = set()
        for label, node in template.nodes.items():
            if "template" not in node:
                continue
            inner = str(node["template"])
            if inner in around or len(around) > DEPTH_MAX:
                chain = " -> ".join((*around, inner))
                self.faults.add(("name",), f"workflow {quoted(name)} contains itself: {chain}")
                continue
            kind = template_kind(self._find, inner)
            found = None if kind is None else self._document(kind, inner, ("nodes", label, "template"))
            if found is None:
                self.faults.add(
                    ("name",), f"node {quoted(label)} of {quoted(name)} launches {quoted(inner)}, which does not exist"
                )
                continue
            pools.add(found.pool)
            if isinstance(found.definition, WorkflowTemplate):
                pools |= self._pools_inside(inner, found.definition, (*around, inner))
        return frozenset(pools)

    def _ad_hoc(self, wanted: Wanted) -> LaunchedGraph | None:
        options = wanted.options
        resources = self._resources(None, wanted.name)
        inventory = self._inventory(wanted.name)
        if not options.module:
            self.faults.add(("module",), "is missing: an ad-hoc command runs one module")
        document = self._find(DocumentKind.INVENTORY, wanted.name)
        if self.faults.noted or document is None or inventory is None:
            return None
        play: dict[str, Any] = {"module": options.module}
        if options.module_args:
            play["module_args"] = options.module_args
        payload = _with_inventory(play, inventory, wanted.name, wanted.variables, options)
        node: dict[str, Any] = {"task": {"dimensions": {POOL: document.pool}, "payload": payload}}
        self._weigh(document, node, play_weight(None, _count_hosts(inventory)))
        return self._graph(document, JOB, node, ad_hoc_mutexes(wanted.name), resources, wanted)

    def _answers(self, template: JobTemplate | SystemJobTemplate | WorkflowTemplate, wanted: Wanted) -> Raw:
        found = answers(template.survey, template.variables, wanted.variables, open_ended=wanted.open_ended)
        for one in found.faults:
            self.faults.add(tuple(one.path.split(".")), one.message)
        return found.values

    def _refuse_options(self, options: Options) -> None:
        """Note options that only a play has."""
        for name in ("limit", "check"):
            if getattr(options, name) is not None:
                self.faults.add((name,), "belongs to a playbook; the template has none")

    # Resources and their updates.

    def _resources(self, project: str | None, inventory: str | None) -> tuple[Resource, ...]:
        found = [] if project is None else [self._project(project)]
        if inventory is not None:
            document = self._inventory(inventory)
            sources = () if document is None else document.sources
            found += [self._source(inventory, one.name) for one in sources]
        return tuple(one for one in found if one is not None)

    def _project(self, name: str) -> Resource | None:
        document = self._document(DocumentKind.PROJECT, name, ("project",))
        if document is None or not isinstance(document.definition, Project):
            return None
        project = document.definition
        digest = content_digest(project)
        return Resource(project_resource(name), project.update_on_launch, project.cache_ms, content=digest)

    def _source(self, inventory: str, name: str) -> Resource | None:
        found = self._inventory(inventory)
        source = next((one for one in found.sources if one.name == name), None) if found is not None else None
        if source is None:
            if found is not None:
                meant = self.faults.meant(name, [one.name for one in found.sources])
                self.faults.add(("name",), f"inventory {quoted(inventory)} has no source {quoted(name)}{meant}")
            return None
        project = None if source.project is None else self._project(source.project)
        digest = content_digest(source)
        return Resource(source_resource(inventory, name), source.update_on_launch, source.cache_ms, project, digest)

    def _inventory(self, name: str | None) -> Inventory | None:
        document = None if name is None else self._document(DocumentKind.INVENTORY, name, ("inventory",))
        return document.definition if document is not None and isinstance(document.definition, Inventory) else None

    def _project_update(self, resource: Resource, name: str) -> LaunchedGraph | None:
        document = self._document(DocumentKind.PROJECT, name, ("project",))
        if document is None or not isinstance(document.definition, Project):
            return None
        project = document.definition
        node = {"task": {**project.task, "payload": project_payload(project)}}
        wanted = Wanted(str(DocumentKind.PROJECT), name)
        return self._graph(document, resource.name, node, project_update_mutexes(name), (), wanted, updates=resource)

    def _source_update(self, resource: Resource, inventory: str, name: str) -> LaunchedGraph | None:
        document = self._document(DocumentKind.INVENTORY, inventory, ("inventory",))
        if document is None or not isinstance(document.definition, Inventory):
            return None
        source = next(one for one in document.definition.sources if one.name == name)
        node = {"task": {**document.definition.task, "payload": source_payload(source)}}
        wanted = Wanted(SOURCE, f"{inventory}/{name}")
        resources = () if resource.comes_from is None else (resource.comes_from,)
        mutexes = inventory_update_mutexes(inventory, name)
        return self._graph(document, resource.name, node, mutexes, resources, wanted, updates=resource)

    # Parts.

    def _weigh(self, document: Document, node: dict[str, Any], weight: int) -> None:
        """Set the weight of a task that has none of its own, in a pool whose capacity is counted in forks."""
        if document.pool in self._pools_in_forks:
            node["task"].setdefault("weight", weight)

    def _document(self, kind: DocumentKind, name: str, at: tuple[str, ...]) -> Document | None:
        self.used.add((kind, name))
        found = self._find(kind, name)
        if found is None:
            self.faults.add(at, f"there is no {str(kind).replace('_', ' ')} {quoted(name)}")
        return found

    def _graph(  # noqa: PLR0913, PLR0917 - what a graph is made of
        self,
        document: Document,
        label: str,
        node: Mapping[str, Any],
        mutexes: Iterable[Mutex],
        resources: tuple[Resource, ...],
        wanted: Wanted,
        pools: Collection[str] = (),
        updates: Resource | None = None,
    ) -> LaunchedGraph:
        """Put the graph of a launch together: links, and the task that waits for them."""
        links = {one.name: one.name for one in resources}
        tasks: dict[str, Any] = {link: {"task": {"payload": {"noop": True}}} for link in links}
        task = {**node["task"], "mutexes": _merged(node["task"].get("mutexes", ()), mutexes)}
        tasks[label] = {**node, "task": task}
        if links:
            tasks[label] |= {"requires": list(links), "on_impossible": LINK_IMPOSSIBLE.text}
        name = updates.name if updates is not None else document.name
        return LaunchedGraph(
            wanted.kind,
            wanted.name,
            document.pool,
            self._versions(document.kind, document.name),
            {"name": name, "tasks": tasks},
            label,
            links,
            resources,
            updates,
            wanted.variables,
            frozenset(pools),
        )


def _forks_of(play: Raw) -> int | None:
    forks = play.get("forks")
    return forks if isinstance(forks, int) else None


def _count_hosts(inventory: Inventory | None) -> int | None:
    """Count the hosts of an inventory; None if sources have more."""
    if inventory is None or inventory.sources:
        return None
    groups = (group.get("hosts", {}) for group in inventory.groups.values())
    return len({*inventory.hosts, *(host for hosts in groups if isinstance(hosts, dict | list) for host in hosts)})


def _merged(own: object, launched: Iterable[Mutex]) -> list[dict[str, str]]:
    """Add the mutexes of a launch to those that a template names itself."""
    found = {one["key"]: dict(one) for one in own} if isinstance(own, list) else {}
    for mutex in launched:
        found[mutex.key] = {"key": mutex.key} if mutex.party is None else {"key": mutex.key, "party": mutex.party}
    return list(found.values())


# Payloads.


#: Where the hosts of sources are in the working folder of a play.
_INVENTORIES: Final = ".taskyard/inventory"


def _play_payload(
    template: JobTemplate, inventory: Inventory | None, name: str | None, variables: Raw, options: Options
) -> dict[str, Any]:
    """Return what a job with a playbook runs: the play, the files of its project, and the hosts of its inventory."""
    payload = _with_inventory(dict(template.play or {}), inventory, name, variables, options)
    if template.project is not None:
        payload["inputs"] = [{"from": project_resource(template.project)}, *payload.get("inputs", ())]
    return surrounded(payload, template.secrets, template.timeout)


def _with_inventory(
    play: dict[str, Any], inventory: Inventory | None, name: str | None, variables: Raw, options: Options
) -> dict[str, Any]:
    """Return a play with the hosts of an inventory: those of its sources, and over them those that it has itself."""
    inputs: list[dict[str, Any]] = []
    if inventory is not None and name is not None:
        files = {one.name: f"{_INVENTORIES}/{place}.json" for place, one in enumerate(inventory.sources)}
        inputs = [
            {"from": source_resource(name, source), "path": HOSTS_FILE, "to": file} for source, file in files.items()
        ]
        play["inventory"] = [*files.values(), _groups(inventory)]
    if variables:
        play["extra_vars"] = dict(variables)
    if options.limit is not None:
        play["limit"] = options.limit
    if options.check is not None:
        play["check"] = options.check
    payload: dict[str, Any] = {Kind.ANSIBLE.text: play}
    return {**payload, "inputs": inputs} if inputs else payload


def _groups(inventory: Inventory) -> dict[str, Any]:
    """Return what an inventory has itself, as a YAML inventory has it."""
    everything: dict[str, Any] = {"hosts": {name: dict(said) for name, said in inventory.hosts.items()}}
    if inventory.vars:
        everything["vars"] = dict(inventory.vars)
    if inventory.groups:
        everything["children"] = {name: _group(group) for name, group in inventory.groups.items()}
    return {"all": everything}


def _group(group: Raw) -> dict[str, Any]:
    found: dict[str, Any] = {field: _by_name(group[field]) for field in ("hosts", "children") if group.get(field)}
    return {**found, "vars": group["vars"]} if group.get("vars") else found


def _by_name(named: object) -> dict[str, Any]:
    if isinstance(named, dict):
        return dict(named)
    return dict.fromkeys(map(str, named)) if isinstance(named, list) else {}


def _with_files(project: str | None, payload: Raw) -> Raw:
    """Put the files of a project into the working folder of a task, below what it takes itself."""
    if project is None:
        return payload
    own = payload.get("inputs")
    return {**payload, "inputs": [{"from": project_resource(project)}, *(own if isinstance(own, list) else ())]}


def _task_with_variables(task: Raw, variables: Raw, faults: Faults) -> Raw:
    payload = task.get("payload")
    if not variables or not isinstance(payload, dict) or not _SERVER_FIELDS.isdisjoint(payload):
        return task
    return {**task, "payload": _with_variables(payload, variables, faults)}


def _with_variables(payload: Raw, variables: Raw, faults: Faults) -> Raw:
    """Give a task the variables of its launch, in an environment variable."""
    if not variables or not _SERVER_FIELDS.isdisjoint(payload):
        return payload
    text = json.dumps(dict(variables), ensure_ascii=False, sort_keys=True)
    if len(text) > ENV_VALUE_MAX:
        faults.add(("variables",), f"have {len(text)} characters; at most {ENV_VALUE_MAX}")
    env = payload.get("env")
    return {**payload, "env": {**(env if isinstance(env, dict) else {}), VARIABLES: text}}
