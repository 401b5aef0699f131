"""The definitions of the catalogue: validated, immutable, with the limits of each of their parts.

`parse` makes these. What becomes a part of a task when a template is launched stays in the form of the graph document:
`task` has the fields of a task (dimensions with the pool of the document, priority, weight, mutexes ...).
"""

from collections.abc import Mapping
from enum import StrEnum, unique
from hashlib import sha256
from typing import Final, TypeAlias

from taskyard.core.durations import DAY_MS, moment_ms
from taskyard.core.fleet import CapacityUnit
from taskyard.core.matching import DEFAULT_POOL
from taskyard.core.reuse import REUSE_WINDOW_MS
from taskyard.core.schedules import Missed, Overlap, Recurrence
from taskyard.core.states import Millis
from taskyard.core.structs import canonical_text, value

#: A source is named `INVENTORY/SOURCE`, and labels and mutexes have a word before that; all fit into 255 characters.
NAME_MAX: Final = 100
#: One transaction writes so many documents, of so many characters in all, in a few dozen milliseconds.
DOCUMENTS_MAX: Final = 1_000
TEXT_MAX: Final = 4_194_304
#: Tasks that the documents of one request describe, a matrix multiplied; reading as many takes a second or two.
TASKS_MAX: Final = 100_000
#: Documents that those of one request refer to, each counted once for each that does: rows of one transaction.
REFERENCES_MAX: Final = 10_000
#: An inventory with ten thousand hosts and a few variables for each.
DOCUMENT_TEXT_MAX: Final = 1_048_576
#: Hosts and groups of one inventory that are written out; more come from a source.
HOSTS_MAX: Final = 10_000
#: A job takes the hosts of each source and the files of its project as inputs, of which it may have 64.
SOURCES_MAX: Final = 60
#: A form that people fill in.
SURVEY_MAX: Final = 100
CHOICES_MAX: Final = 1_000
VARIABLE_MAX: Final = 64
VARIABLES_MAX: Final = 1_000
#: The longest text that a survey takes, and the longest list.
ANSWER_MAX: Final = 32_768
#: As long as a graph may be kept waiting for a start.
CACHE_MAX_MS: Final = 366 * DAY_MS
#: Older versions of a document are forgotten.
VERSIONS_MAX: Final = 1_000

#: A part of a document as it was written.
Raw: TypeAlias = Mapping[str, object]
_NOTHING: Raw = {}


@unique
class DocumentKind(StrEnum):
    """What a document describes."""

    PROJECT = "project"
    INVENTORY = "inventory"
    JOB_TEMPLATE = "job_template"
    WORKFLOW_TEMPLATE = "workflow_template"
    SYSTEM_JOB_TEMPLATE = "system_job_template"
    SCHEDULE = "schedule"
    POOL = "pool"
    LIMIT = "limit"


#: What can be launched. These share one set of names, because a launch gives only the name.
TEMPLATES: Final = (DocumentKind.JOB_TEMPLATE, DocumentKind.WORKFLOW_TEMPLATE, DocumentKind.SYSTEM_JOB_TEMPLATE)
#: Settings, which the catalogue only shows: they are stored elsewhere, without versions.
SETTINGS: Final = (DocumentKind.POOL, DocumentKind.LIMIT)


@unique
class AnswerType(StrEnum):
    """The types of the answers of a survey."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    CHOICE = "choice"
    LIST = "list"


@value
class Project:
    """A git repository."""

    git: str
    branch: str = "HEAD"
    update_on_launch: bool = False
    cache_ms: int = 0  # how long a successful update is good enough
    secrets: Raw = _NOTHING
    timeout: str | None = None
    task: Raw = _NOTHING


@value
class InventorySource:
    """Where hosts of an inventory come from: a file or script of a project, or the configuration of a plugin."""

    name: str
    project: str | None = None
    path: str | None = None
    plugin: Raw | None = None
    update_on_launch: bool = False
    cache_ms: int = 0
    secrets: Raw = _NOTHING
    timeout: str | None = None


@value
class Inventory:
    """Hosts and groups: those that are written out, and those of sources."""

    hosts: Mapping[str, Raw] = _NOTHING  # type: ignore[assignment]  # variables by host
    groups: Mapping[str, Raw] = _NOTHING  # type: ignore[assignment]  # `hosts`, `vars` and `children` by group
    vars: Raw = _NOTHING
    sources: tuple[InventorySource, ...] = ()
    task: Raw = _NOTHING  # of the updates of its sources


@value
class SurveyField:
    """One variable that a launch asks for."""

    name: str
    type: AnswerType
    required: bool = False
    default: object = None  # None: there is none
    min: float | None = None  # of a number; of the length of a text or a list
    max: float | None = None
    choices: tuple[str, ...] = ()
    description: str = ""


@value
class JobTemplate:
    """One task: a playbook with an inventory, or any payload."""

    project: str | None = None
    inventory: str | None = None
    play: Raw | None = None  # `ansible` of the payload, with the playbook; inventory and variables come with the launch
    payload: Raw | None = None
    allow_simultaneous: bool = False
    secrets: Raw = _NOTHING  # of a playbook; a payload has its own
    timeout: str | None = None  # likewise
    task: Raw = _NOTHING
    reruns: object = None  # as in a node; None: none
    variables: Raw = _NOTHING
    survey: tuple[SurveyField, ...] = ()


@value
class WorkflowTemplate:
    """A graph whose nodes are tasks, or launches of other templates."""

    nodes: Mapping[str, Raw]  # as the `tasks` of a graph document; one with `template` has no `task`
    allow_simultaneous: bool = False
    variables: Raw = _NOTHING
    survey: tuple[SurveyField, ...] = ()


@value
class SystemJobTemplate:
    """One task that keeps the system itself in order."""

    payload: Raw
    task: Raw = _NOTHING
    variables: Raw = _NOTHING
    survey: tuple[SurveyField, ...] = ()


@value
class Schedule:
    """When a template is launched by itself."""

    template: str
    cron: str | None = None
    rrule: str | None = None
    timezone: str = "UTC"
    start: str | None = None
    missed: Missed = Missed.ONE
    overlap: Overlap = Overlap.ALLOW
    variables: Raw = _NOTHING
    enabled: bool = True

    @property
    def recurrence(self) -> Recurrence:
        """When it launches."""
        start = 0 if self.start is None else moment_ms(self.start)
        assert start is not None, "a schedule with a faulty start is refused"
        return Recurrence(self.cron or "", self.rrule or "", self.timezone, Millis(start))


@value
class PoolSettings:
    """The settings of a pool."""

    capacity: int | None = None
    from_bots: bool = False
    unit: CapacityUnit = CapacityUnit.SLOTS  # what a capacity from bots counts,
    adjustment: float = 1.0  # and where in its range it lies
    reuse_window_ms: int = REUSE_WINDOW_MS
    reuse_shared: bool = False
    external: bool = False  # workers behind a message broker run its tasks, not bots


@value
class LimitSettings:
    """A named limit."""

    total: int


Definition: TypeAlias = (
    Project | Inventory | JobTemplate | WorkflowTemplate | SystemJobTemplate | Schedule | PoolSettings | LimitSettings
)


@value
class Document:
    """One document: what it is called, what it means, and its text."""

    kind: DocumentKind
    name: str
    definition: Definition
    body: str  # JSON; equal bodies are the same document
    pool: str = DEFAULT_POOL
    description: str = ""


# What documents refer to.


#: Stands for all kinds of templates in a reference.
TEMPLATE: Final = "template"


@value
class Reference:
    """A document that another one needs, and the field that names it."""

    kind: str  # of `DocumentKind`, or TEMPLATE
    name: str
    path: tuple[str | int, ...]  # in the document that refers


def references(document: Document) -> tuple[Reference, ...]:
    """List what a document refers to, in the order of its fields."""
    match document.definition:
        case JobTemplate(project=project, inventory=inventory):
            named = ((DocumentKind.PROJECT, project), (DocumentKind.INVENTORY, inventory))
            return tuple(Reference(str(kind), name, (str(kind),)) for kind, name in named if name is not None)
        case Inventory(sources=sources):
            return tuple(
                Reference(str(DocumentKind.PROJECT), one.project, ("sources", place, "project"))
                for place, one in enumerate(sources)
                if one.project is not None
            )
        case WorkflowTemplate(nodes=nodes):
            return tuple(
                Reference(TEMPLATE, str(node["template"]), ("nodes", label, "template"))
                for label, node in nodes.items()
                if "template" in node
            )
        case Schedule(template=template):
            return (Reference(TEMPLATE, template, ("template",)),)
    return ()


# What the updates of resources are about.


def project_resource(name: str) -> str:
    """Name a project as a resource: in labels, and where its updates are found."""
    return f"project:{name}"


def source_resource(inventory: str, source: str) -> str:
    """Name a source of an inventory likewise."""
    return f"source:{inventory}/{source}"


def content_digest(definition: Project | InventorySource) -> str:
    """Return a digest of what an update fetches: an update with another one says nothing about the resource now."""
    if isinstance(definition, Project):
        fetched: dict[str, object] = {"git": definition.git, "branch": definition.branch}
    else:
        fetched = {"project": definition.project, "path": definition.path, "plugin": definition.plugin}
    return sha256(canonical_text(fetched).encode()).hexdigest()
