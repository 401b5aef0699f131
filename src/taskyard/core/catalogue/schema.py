"""The tables of the catalogue's documents: the fields of each kind, and of the small objects inside them.

Fields of tasks, plays and payloads are those of the graph document, and are read as there.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from taskyard.core.catalogue.model import (
    ANSWER_MAX,
    CACHE_MAX_MS,
    CHOICES_MAX,
    HOSTS_MAX,
    NAME_MAX,
    SOURCES_MAX,
    SURVEY_MAX,
    VARIABLE_MAX,
    VARIABLES_MAX,
    AnswerType,
    DocumentKind,
)
from taskyard.core.durations import span_text
from taskyard.core.fleet import CapacityUnit
from taskyard.core.graph import model as graph
from taskyard.core.graph.errors import Faults, Path, quoted
from taskyard.core.graph.payload import PAYLOAD
from taskyard.core.graph.plays import ANSIBLE, GIT
from taskyard.core.graph.scalars import (
    REQUIRED,
    Field,
    Level,
    Reader,
    boolean,
    choice,
    constant,
    distinct,
    integer,
    list_of,
    matching,
    name_fault,
    number,
    read_name,
    span,
    text,
)
from taskyard.core.graph.schema import NODE, TASK
from taskyard.core.matching import DEFAULT_POOL
from taskyard.core.reuse import REUSE_WINDOW_MAX_MS, REUSE_WINDOW_MS
from taskyard.core.schedules import (
    EXPRESSION_MAX,
    ZONE_MAX,
    Missed,
    Overlap,
    cron_fault,
    rrule_fault,
    zone_fault,
)


def _without(find_fault: Callable[[str], str | None], longest: int) -> Reader:
    """Read a text in which a function finds no fault."""
    plain = text(longest)

    def read(value: object, at: Path, faults: Faults) -> object:
        found = plain.read(value, at, faults)
        if isinstance(found, str) and (fault := find_fault(found)):
            faults.add(at, fault)
            return None
        return found

    return Reader(plain.takes, read)


def _document_name(value: object, at: Path, faults: Faults) -> str | None:
    """Read the name of a document: `/` stands between an inventory and its source."""
    name = _NAME.read(value, at, faults)
    if isinstance(name, str) and "/" in name:
        faults.add(at, "holds a /, which stands between an inventory and its source; use another character")
        return None
    return name if isinstance(name, str) else None


def _hosts(value: object, at: Path, faults: Faults) -> object:
    """Read hosts: a list of names, or an object of their variables."""
    named = value
    if isinstance(value, list):
        named = {one: None for one in value if isinstance(one, str)}
        for place, one in enumerate(value):
            if not isinstance(one, str):
                faults.wrong((*at, place), "the name of a host", one)
            elif one in value[:place]:
                faults.add((*at, place), f"repeats the host {quoted(one)}; name it once")
    elif not isinstance(value, dict):
        faults.wrong(at, _HOSTS.takes, value)
        return None
    assert isinstance(named, dict)
    if len(named) > HOSTS_MAX:
        faults.add(at, f"must hold at most {HOSTS_MAX} hosts; got {len(named)}: take more from a source")
        return None
    for name, variables in named.items():
        _check_host(name, variables, (*at, name), faults)
    return value


def _check_host(name: str, variables: object, at: Path, faults: Faults) -> None:
    if fault := name_fault(name):
        faults.add(at, f"the host {fault}")
    elif name in _RESERVED_GROUPS:
        faults.add(at, f"{quoted(name)} is a group of Ansible; call the host something else")
    if variables is not None:
        _OBJECT.read(variables, at, faults)


def _groups(value: object, at: Path, faults: Faults) -> object:
    if not isinstance(value, dict):
        faults.wrong(at, _GROUPS.takes, value)
        return None
    if len(value) > HOSTS_MAX:
        faults.add(at, f"must hold at most {HOSTS_MAX} groups; got {len(value)}")
        return None
    for name, group in value.items():
        if fault := name_fault(name):
            faults.add((*at, name), f"the group {fault}")
        elif name in _RESERVED_GROUPS:
            faults.add((*at, name), f"is a group that Ansible makes itself; {_RESERVED_GROUPS[name]}")
        if group is not None:
            GROUP.read(group, (*at, name), faults)
    return value


def _children(value: object, at: Path, faults: Faults) -> object:
    names = list(value) if isinstance(value, dict) else value
    found = _NAMES.read(names, at, faults)
    if isinstance(value, dict):
        for name, inner in value.items():
            if inner is not None and inner != {}:
                faults.add((*at, name), "is described here; describe it in groups, and only name it")
    return value if found is not None else None


def _plugin(value: object, at: Path, faults: Faults) -> object:
    found = _OBJECT.read(value, at, faults)
    if isinstance(found, dict):
        if "plugin" not in found:
            faults.add(at, 'needs the field "plugin", the name of an inventory plugin')
        else:
            _LINE.read(found["plugin"], (*at, "plugin"), faults)
    return found


def _variables(value: object, at: Path, faults: Faults) -> object:
    found = _OBJECT.read(value, at, faults)
    if not isinstance(found, dict):
        return None
    if len(found) > VARIABLES_MAX:
        faults.add(at, f"must hold at most {VARIABLES_MAX} variables; got {len(found)}")
    for name in found:
        _VARIABLE.read(name, (*at, name), faults)
    return found


def _any(value: object, at: Path, faults: Faults) -> object:  # noqa: ARG001 - a reader
    """Take a value as it is; the survey of its field checks it."""
    return value


def _shared(levels: Iterable[Level], *names: str) -> tuple[Field, ...]:
    """Return fields of the graph document, in the order of these names."""
    known = {field.name: field for level in levels for field in level.fields}
    return tuple(known[name] for name in names)


_NAME = read_name(NAME_MAX)
_LINE = text(graph.PATH_MAX)
_OBJECT = constant(dict, "an object")
_DOCUMENT_NAME = Reader(f"{_NAME.takes}, without /", _document_name)
_NAMES = distinct(list_of(read_name(), 0, HOSTS_MAX), lambda name: name, "name")
_VARIABLE = matching(
    rf"[A-Za-z_][A-Za-z0-9_]{{0,{VARIABLE_MAX - 1}}}", f"a name of letters, digits and _ (at most {VARIABLE_MAX})"
)
_HOSTS = Reader("a list of hosts, or an object of hosts, each with an object of variables or null", _hosts)
_GROUPS = Reader("an object of groups", _groups)
_VARIABLES = Reader("an object of variables", _variables)
_RESERVED_GROUPS: Final = {"all": "give its vars as the vars of the inventory", "ungrouped": "leave it out"}
_TEMPLATE_NAME = Field("template", _DOCUMENT_NAME, REQUIRED, "The template that is launched.")
_CACHE = Field(
    "update_cache_timeout",
    span(0, CACHE_MAX_MS),
    span_text(0),
    "How long a successful update is good enough for a launch; `0s` updates each time.",
)
_SECRETS, _TIMEOUT = _shared([PAYLOAD], "secrets", "timeout")
_URL, _BRANCH = _shared([GIT], "url", "branch")
#: The fields of a task that templates have: without the pool in `dimensions`, which is that of the document, and
#: without tags, which are those of plays here.
TASK_FIELDS: Final = (
    "dimensions", "expires", "slots", "cpus", "memory", "gpus", "priority", "retries", "weight", "mutexes", "limits",
)  # fmt: skip
#: The fields of a play that come from the launch, or that only an ad-hoc command has.
_NOT_OF_TEMPLATES: Final = frozenset(
    {"playbook", "module", "module_args", "inventory", "inventory_source", "extra_vars", "extra_vars_from"}
)
#: The fields of a play that stand beside the playbook of a template.
PLAY_FIELDS: Final = tuple(field.name for field in ANSIBLE.fields if field.name not in _NOT_OF_TEMPLATES)
#: The fields of a task that updates have.
_UPDATE_FIELDS = _shared([TASK], "dimensions", "priority")


def _document(what: str, *fields: Field, pool: bool = True) -> Level:
    """Return the table of a kind: the fields of every document, and its own."""
    name = _DOCUMENT_NAME if pool else read_name()
    common = [
        Field("kind", Reader("a kind", _any), REQUIRED, "What it describes: the heading of this table."),
        Field("name", name, REQUIRED, "What it is called; unique among those of its kind."),
    ]
    if pool:
        common += [
            Field("pool", read_name(), DEFAULT_POOL, "Whose rights it needs, and where its tasks run."),
            Field("description", text(graph.DESCRIPTION_MAX, empty=True), "", "For people."),
        ]
    return Level(what, *common, *fields)


SOURCE = Level(
    "a source",
    Field("name", _DOCUMENT_NAME, REQUIRED, "What it is called; unique in its inventory."),
    Field("project", _DOCUMENT_NAME, None, "The project that has the file or the script."),
    Field("path", _LINE, None, "The file or script of the project."),
    Field("plugin", Reader("the configuration of an inventory plugin", _plugin), None, "Instead of project and path."),
    Field("update_on_launch", boolean(), False, "Whether a launch that uses it updates it first."),
    _CACHE,
    _SECRETS,
    _TIMEOUT,
)

GROUP = Level(
    "a group",
    Field("hosts", _HOSTS, (), "Its hosts: a list, or an object with variables."),
    Field("vars", _OBJECT, (), "Its variables."),
    Field("children", Reader("a list of names of groups", _children), (), "The groups in it."),
)

SURVEY_FIELD = Level(
    "an entry of a survey",
    Field("name", _VARIABLE, REQUIRED, "The variable."),
    Field("type", choice(AnswerType), REQUIRED, "What it takes; a `list` is one of texts."),
    Field("required", boolean(), False, "Whether a launch has to give it, if it has no default."),
    Field("default", Reader("a value of the type", _any), None, "What it is unless it is given."),
    Field(
        "min", number(-graph.INTEGER_MAX, graph.INTEGER_MAX), None, "The least number; of texts and lists the length."
    ),
    Field("max", number(-graph.INTEGER_MAX, graph.INTEGER_MAX), None, "The greatest number, or length."),
    Field(
        "choices",
        distinct(list_of(text(ANSWER_MAX), 1, CHOICES_MAX), lambda one: one, "choice"),
        (),
        "The texts to choose from, of a `choice` or a `list`.",
    ),
    Field("description", text(graph.DESCRIPTION_MAX, empty=True), "", "What people are asked."),
)

_WITH_VARIABLES = (
    Field("variables", _VARIABLES, (), "Variables, which a launch may replace."),
    Field(
        "survey",
        list_of(Reader(SURVEY_FIELD.takes, SURVEY_FIELD.read), 0, SURVEY_MAX),
        (),
        "The variables that a launch is asked for, with their types.",
    ),
)
_SIMULTANEOUS = Field("allow_simultaneous", boolean(), False, "Whether several launches of it may run at once.")

PROJECT = _document(
    "a project",
    Field("git", _URL.reader, REQUIRED, "The repository."),
    Field("branch", _BRANCH.reader, "HEAD", "What is checked out; `HEAD` is the default branch."),
    Field("update_on_launch", boolean(), False, "Whether a launch that uses it updates it first."),
    _CACHE,
    _SECRETS,
    *_UPDATE_FIELDS,
    _TIMEOUT,
)

INVENTORY = _document(
    "an inventory",
    Field("hosts", _HOSTS, (), "Its hosts: a list, or an object with variables."),
    Field("groups", _GROUPS, (), "Groups, each with `hosts`, `vars` and `children`."),
    Field("vars", _OBJECT, (), "Variables of all hosts."),
    Field(
        "sources",
        list_of(Reader(SOURCE.takes, SOURCE.read), 0, SOURCES_MAX),
        (),
        "Where more hosts come from; each is updated by itself.",
    ),
    *_UPDATE_FIELDS,
)

JOB_TEMPLATE = _document(
    "a job template",
    Field("project", _DOCUMENT_NAME, None, "The project whose files the job gets."),
    Field("inventory", _DOCUMENT_NAME, None, "The inventory whose hosts the job works on."),
    *_shared([ANSIBLE], "playbook", *PLAY_FIELDS),
    _SECRETS,
    _TIMEOUT,
    Field("payload", Reader(PAYLOAD.takes, PAYLOAD.read), None, "Any payload of a task, instead of a playbook."),
    _SIMULTANEOUS,
    *_shared([TASK], *TASK_FIELDS),
    *_shared([NODE], "reruns"),
    *_WITH_VARIABLES,
)

#: A node of a workflow: that of a graph, or a template in place of its task.
WORKFLOW_NODE = Level(
    "a node of a workflow",
    Field("template", _DOCUMENT_NAME, None, "The template that is launched for it."),
    Field("variables", _OBJECT, (), "Variables of that launch."),
    Field("task", constant(dict, TASK.takes), None, "The task itself, instead of a template."),
    *(field for field in NODE.fields if field.name != "task"),
)

WORKFLOW_TEMPLATE = _document(
    "a workflow template",
    Field("nodes", constant(dict, "an object of nodes by label"), REQUIRED, "Nodes by label, as the tasks of a graph."),
    _SIMULTANEOUS,
    *_WITH_VARIABLES,
)

SYSTEM_JOB_TEMPLATE = _document(
    "a system job template",
    Field("payload", Reader(PAYLOAD.takes, PAYLOAD.read), REQUIRED, "The payload of its task."),
    *_shared([TASK], *TASK_FIELDS),
    *_WITH_VARIABLES,
)

SCHEDULE = _document(
    "a schedule",
    _TEMPLATE_NAME,
    Field("cron", _without(cron_fault, EXPRESSION_MAX), None, "When: minute, hour, day, month and weekday."),
    Field("rrule", _without(rrule_fault, EXPRESSION_MAX), None, "When, as a recurrence rule of iCalendar."),
    Field("timezone", _without(zone_fault, ZONE_MAX), "UTC", "The time zone of these times, such as `Europe/Berlin`."),
    Field(
        "start",
        text(graph.NAME_MAX),
        None,
        "When the schedule begins, as an RFC 3339 time; the steps of a rule count from there.",
    ),
    Field("missed", choice(Missed), "one", "What becomes of the runs that were missed: none, one, or all of them."),
    Field("overlap", choice(Overlap), "allow", "Whether it launches while its last launch has not ended."),
    Field("variables", _VARIABLES, (), "Variables of the launches."),
    Field("enabled", boolean(), True, "Whether it launches at all."),
)

POOL = _document(
    "a pool",
    Field("capacity", integer(0, graph.INTEGER_MAX), None, "The capacity; left out, that of its bots or none."),
    Field("from_bots", boolean(), False, "Whether the capacity is that of its live bots."),
    Field("unit", choice(CapacityUnit), "slots", "What a capacity from bots counts."),
    Field("adjustment", number(0, 1), 1.0, "Where between its least and its greatest a capacity in forks lies."),
    Field(
        "reuse_window",
        span(0, REUSE_WINDOW_MAX_MS),
        span_text(REUSE_WINDOW_MS),
        "For how long results of idempotent tasks are reused.",
    ),
    Field("reuse_shared", boolean(), False, "Whether they are reused across submitters."),
    Field("external", boolean(), False, "Whether workers behind a message broker run its tasks, not bots."),
    pool=False,
)

LIMIT = _document(
    "a named limit",
    Field("total", integer(0, graph.INTEGER_MAX), REQUIRED, "How much tasks may share."),
    pool=False,
)

#: The table of each kind.
LEVELS: Mapping[DocumentKind, Level] = MappingProxyType(
    {
        DocumentKind.PROJECT: PROJECT,
        DocumentKind.INVENTORY: INVENTORY,
        DocumentKind.JOB_TEMPLATE: JOB_TEMPLATE,
        DocumentKind.WORKFLOW_TEMPLATE: WORKFLOW_TEMPLATE,
        DocumentKind.SYSTEM_JOB_TEMPLATE: SYSTEM_JOB_TEMPLATE,
        DocumentKind.SCHEDULE: SCHEDULE,
        DocumentKind.POOL: POOL,
        DocumentKind.LIMIT: LIMIT,
    }
)

#: Every field by level, for the reference: each kind, then the small objects inside it.
FIELDS: Mapping[str, tuple[Field, ...]] = MappingProxyType(
    {
        "project": PROJECT.fields,
        "inventory": INVENTORY.fields,
        "source": SOURCE.fields,
        "group": GROUP.fields,
        "job_template": JOB_TEMPLATE.fields,
        "workflow_template": WORKFLOW_TEMPLATE.fields,
        "node": WORKFLOW_NODE.fields,
        "system_job_template": SYSTEM_JOB_TEMPLATE.fields,
        "survey": SURVEY_FIELD.fields,
        "schedule": SCHEDULE.fields,
        "pool": POOL.fields,
        "limit": LIMIT.fields,
    }
)
