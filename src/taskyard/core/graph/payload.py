"""What a task runs: exactly one kind of work, and what surrounds it.

A payload stays the mapping that was submitted; these tables only check it. `{"$subs": ...}` may stand wherever a
text is wanted, except for names (of secrets, of Python functions, of environment variables) and paths of caches.

- `command`: an argument list. `script`: shell text, for the shell of `shell`. `noop: true`: nothing; it ends at once.
- `python`: `module:function`; `args` is a list of positional or an object of named JSON arguments.
- `ansible`: a playbook's path, or an object; see `plays`. `git`: the URL of a repository, or an object; see `plays`.
- `approval`: what a person is asked, or an object; `timeout` is how long, and `on_timeout` what happens then.
- `caches`: folders of the bot that later tasks find again, by name; each is put at a path in the working folder.
- `graph`: a graph document, run as a graph of its own for each attempt; its `$subs` are about its own labels.
- `inputs`: trees by digest, and outputs of prerequisites, laid over each other in order. `outputs`: paths and patterns.
- `secrets`: which secrets the task gets, by variable: a name, or an object that asks for a file.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum, unique
from types import MappingProxyType
from typing import Any, TypedDict

from taskyard.core.durations import span_ms, span_text
from taskyard.core.graph.errors import Faults, Path
from taskyard.core.graph.model import (
    ARGUMENT_MAX,
    CACHE_NAME_MAX,
    CACHES_MAX,
    COMMAND_MAX,
    DESCRIPTION_MAX,
    ENV_MAX,
    ENV_NAME_MAX,
    ENV_VALUE_MAX,
    EXPIRES_MS,
    GRACE_MAX_MS,
    GRACE_MS,
    INPUTS_MAX,
    MEDIA_TYPE_MAX,
    NAME_MAX,
    OUTPUTS_MAX,
    PATH_MAX,
    SCRIPT_MAX,
    SECRETS_MAX,
    TIMEOUT_MAX_MS,
    TIMEOUT_MIN_MS,
    TIMEOUT_MS,
    Payload,
    Slice,
)
from taskyard.core.graph.plays import (
    ANSIBLE,
    GIT,
    NEEDS,
    OWN_CACHES,
    labels_of_variables,
    own_cache,
    path_fault,
    read_checkout,
    read_play,
    secret_uses,
)
from taskyard.core.graph.scalars import (
    REQUIRED,
    Field,
    Level,
    Reader,
    boolean,
    choice,
    constant,
    is_mark,
    list_of,
    matching,
    pairs_of,
    read_name,
    record,
    shorthand,
    span,
    text,
    text_or_subs,
)
from taskyard.core.matching import Dimensions, with_need, with_pool
from taskyard.core.resources import Resources, with_taken
from taskyard.core.states import Kind, Millis, State
from taskyard.core.structs import value

KINDS: Mapping[str, Kind] = {str(kind): kind for kind in Kind}
#: Kinds that the server runs itself: no bot, so no choice of slices, and no share of a pool.
SERVER_KINDS = frozenset({Kind.APPROVAL, Kind.GRAPH, Kind.LAUNCH, Kind.LINK, Kind.NOOP})
#: Kinds whose attempts are graphs.
GRAPH_KINDS = frozenset({Kind.GRAPH, Kind.LAUNCH})
#: Kinds that only the server makes, when it launches a template. No document that is submitted may have them.
LAUNCHED_KINDS = frozenset({Kind.LAUNCH, Kind.LINK})
#: Kinds beside which only a `timeout` means something, as people call them; and what surrounds every other kind.
ALONE: Mapping[Kind, str] = {
    Kind.APPROVAL: "an approval",
    Kind.GRAPH: "a graph inside, whose tasks have their own",
    Kind.LAUNCH: "a launch, whose template has its own",
}
_NAMED = [kind for kind in Kind if kind not in LAUNCHED_KINDS]
_NO_FIELDS: frozenset[str] = frozenset()
_IDLE_FOR_GIT = frozenset({"inputs", "caches", "cwd"})
_SURROUNDINGS = frozenset({"env", "secrets", "inputs", "outputs", "caches", "cwd", "io_timeout", "grace"})
#: The fields of a payload that can name secrets of a pool, and those with caches.
SECRET_FIELDS = frozenset({"secrets", *(kind.text for kind in NEEDS)})
CACHE_FIELDS = frozenset({"caches", Kind.GIT.text})
#: In the stored payload of a request that came with secret bytes. No document may have it.
HAS_SECRET_BYTES = "has_secret_bytes"  # noqa: S105 - the name of a field
#: The variable with the path of the file that has them.
SECRET_BYTES_VARIABLE = "TASKYARD_SECRET_BYTES"  # noqa: S105
#: The beginning of the variables that only the bot sets.
RESERVED = "TASKYARD_"
#: Stands for a payload that is not an object, to distinguish it from a missing one.
BROKEN: Payload = MappingProxyType({"": None})


@unique
class Shell(StrEnum):
    """The shells that can run a script: each knows `-e`, which ends it at its first failing command."""

    SH = "sh"
    BASH = "bash"
    DASH = "dash"
    KSH = "ksh"
    ZSH = "zsh"


@unique
class Silence(StrEnum):
    """What happens to an approval that times out."""

    DENY = "deny"
    APPROVE = "approve"


def kind_of(payload: Payload, at: Path, faults: Faults) -> Kind | None:
    """Return the one kind of a payload, slice over task; note fields that exclude each other."""
    kinds = [KINDS[name] for name in payload if name in KINDS]
    if len(kinds) != 1:
        kept = f"has {' and '.join(sorted(kinds))}; keep one"
        faults.add(at, kept if kinds else f"says nothing to run; add one of {', '.join(_NAMED)}")
        return None
    kind = kinds[0]
    if len(payload) == 1:
        return kind
    if "args" in payload and kind is not Kind.PYTHON:
        faults.add((*at, "args"), 'belongs to "python"; a command holds its own arguments')
    if payload.get("fresh") and kind is not Kind.PYTHON:
        faults.add((*at, "fresh"), 'belongs to "python"; a program has a process of its own anyway')
    if "shell" in payload and kind is not Kind.SCRIPT:
        faults.add((*at, "shell"), 'belongs to "script"; a command names its program itself')
    _check_surroundings(payload, kind, at, faults)
    return kind


def _check_surroundings(payload: Payload, kind: Kind, at: Path, faults: Faults) -> None:
    """Note what surrounds a kind of work and does not go with it."""
    if "secrets" in payload:
        _refuse_variables(payload["secrets"], payload.get("env"), at, faults)
    if payload.get("caches"):
        _refuse_caches(payload, kind, at, faults)
    if "inputs" in payload and str(payload.get("cwd", "")).startswith("/"):
        faults.add((*at, "cwd"), "must be relative beside inputs, which are in a fresh folder; remove the first /")
    idle = _SURROUNDINGS if kind in ALONE else _IDLE_FOR_GIT if kind is Kind.GIT else _NO_FIELDS
    for name in sorted(payload.keys() & idle):
        faults.add((*at, name), f"means nothing to {ALONE.get(kind, 'a checkout')}; remove it")


def payloads(task: Mapping[str, object], at: Path) -> Iterator[tuple[Path, Mapping[str, object]]]:
    """Yield the payloads that are written in a task: its own, and those of its slices."""
    slices = task.get("slices")
    entries = enumerate(slices) if isinstance(slices, list) else ()
    for place, holder in ((at, task), *(((*at, "slices", index), entry) for index, entry in entries)):
        payload = holder.get("payload") if isinstance(holder, Mapping) else None
        if isinstance(payload, dict):
            yield (*place, "payload"), payload


def _read(value: object, at: Path, faults: Faults) -> Payload:
    """Check a payload and return it as it is: a faulty field is noted, but it still counts as present."""
    PAYLOAD.read(value, at, faults)
    return value if isinstance(value, dict) else BROKEN


def _refuse_variables(secrets: object, env: object, at: Path, faults: Faults) -> None:
    for variable in sorted(secrets) if isinstance(secrets, dict) else ():
        if isinstance(env, dict) and variable in env:
            faults.add((*at, "secrets", variable), "is in env too; keep one")
        if variable.startswith(RESERVED):
            faults.add((*at, "secrets", variable), f"is for the bot to set; do not begin it with {RESERVED}")


def cache_names(payload: Payload) -> Iterable[str]:
    """Return the names of the caches of a valid payload, also of one that its kind has for itself."""
    own = own_cache(payload) if Kind.GIT in payload else None
    return payload.get("caches") or () if own is None else (own,)  # type: ignore[return-value]


def _refuse_caches(payload: Payload, kind: Kind, at: Path, faults: Faults) -> None:
    """Note where caches cannot be: a cache is put into the fresh folder that a program starts in."""
    if kind is Kind.PYTHON:
        faults.add((*at, "caches"), "belongs to a command or a script; a function has no folder of its own")
    if payload.get("cwd") is not None:
        faults.add((*at, "caches"), "is put into the fresh folder of a task, where this one does not start; remove cwd")


def _caches(value: object, at: Path, faults: Faults) -> object:
    found = _CACHE_PATHS.read(value, at, faults)
    paths: dict[str, str] = {}
    for name, path in found if isinstance(found, tuple) else ():  # at most `CACHES_MAX`
        if path in paths:
            faults.add((*at, name), f"has the path of the cache {paths[path]}; each needs its own")
        paths.setdefault(path, name)
    for name in paths.values():
        if name.startswith(OWN_CACHES):
            faults.add((*at, name), f"is for the bot to use; do not begin it with {OWN_CACHES}")
    for path, name in paths.items():
        outer = next((other for other in paths if path.startswith(f"{other}/")), None)
        if outer is not None:
            faults.add((*at, name), f"is inside the cache {paths[outer]}; give it a path of its own")
    return found


def _cache_path(value: object, at: Path, faults: Faults) -> object:
    path = _PLAIN_PATH.read(value, at, faults)
    if isinstance(path, str) and (fault := path_fault(path)):
        faults.add(at, fault)
    return path


def _command(value: object, at: Path, faults: Faults) -> object:
    # Every task has one, so the usual entry is not worth a call and a place of its own.
    if isinstance(value, list) and 1 <= len(value) <= COMMAND_MAX:
        for index, item in enumerate(value):
            if type(item) is not str or len(item) > ARGUMENT_MAX:
                _ARGUMENT.read(item, (*at, index), faults)
        return value
    if isinstance(value, str):
        faults.add(at, f"must be a list of arguments; write [{', '.join(value.split())}], or use script")
        return None
    return _ARGUMENTS.read(value, at, faults)


def _inner_path(value: object, at: Path, faults: Faults) -> object:
    """Read a path in the working folder; a slash at the end says that it is a folder."""
    path = _PATH.read(value, at, faults)
    if isinstance(path, str) and (fault := path_fault(path.removesuffix("/"))):
        faults.add(at, fault)
    return path


def _artifact_path(value: object, at: Path, faults: Faults) -> object:
    path = _inner_path(value, at, faults)
    if isinstance(path, str) and (path.endswith("/") or any(one in path for one in "*?[")):
        faults.add(at, "must name one file beside a name; write a pattern as a text of its own")
    return path


def _output(value: object, at: Path, faults: Faults) -> object:
    if isinstance(value, str) or is_mark(value):
        return _inner_path(value, at, faults)
    return OUTPUT.read(value, at, faults)


def _local(value: object, at: Path, faults: Faults) -> object:
    faults.add(at, "is on the machine that submits: `taskyard submit` and `taskyard run` upload it; name its tree here")
    return value


def _input(value: object, at: Path, faults: Faults) -> object:
    found = INPUT.read(value, at, faults)
    if isinstance(value, dict) and len(value.keys() & {"tree", "from", "local"}) != 1:
        faults.add(at, 'needs either "tree" or "from"')
    return found


_ARGUMENT = text_or_subs(ARGUMENT_MAX, empty=True)
_ARGUMENTS = list_of(_ARGUMENT, 1, COMMAND_MAX)
_PATH = text_or_subs(PATH_MAX)
_PLAIN_PATH = text(PATH_MAX)
_CACHE_PATHS = pairs_of(
    matching(
        rf"[a-z0-9_][a-z0-9_-]{{0,{CACHE_NAME_MAX - 1}}}", f"a name of a-z, 0-9, _ and - (at most {CACHE_NAME_MAX})"
    ),
    Reader("a relative path", _cache_path),
    CACHES_MAX,
)
_ENV_NAME = matching(
    rf"[A-Za-z_][A-Za-z0-9_]{{0,{ENV_NAME_MAX - 1}}}", f"a name of letters, digits and _ (at most {ENV_NAME_MAX})"
)
_IDENTIFIERS = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_INNER_PATH = Reader("a relative path", _inner_path)
_URL = GIT.reader("url")
_TREE = matching("[0-9a-f]{64}", "the digest of a tree, 64 hexadecimal digits")

APPROVAL = Level(
    "an approval",
    Field("message", text_or_subs(DESCRIPTION_MAX), REQUIRED, "What the person is asked."),
    Field("on_timeout", choice(Silence), "deny", "What happens after the payload's timeout."),
)

INPUT = Level(
    "an input",
    Field("tree", _TREE, None, "The digest of a tree, as `taskyard put` prints it."),
    Field("from", text(NAME_MAX), None, "The label of a prerequisite, whose outputs are taken."),
    Field("local", Reader("a path", _local), None, "A file or folder of the machine that submits, which uploads it."),
    Field("path", _INNER_PATH, None, "The file or folder of it that is taken; left out, all of it."),
    Field("to", _INNER_PATH, None, "Its new path in the working folder; left out, the path that it has."),
)

OUTPUT = Level(
    "an output",
    Field("path", Reader("a relative path", _artifact_path), REQUIRED, "The file."),
    Field("name", read_name(), REQUIRED, "The name of the artifact."),
    Field(
        "type",
        matching(
            rf"(?=.{{3,{MEDIA_TYPE_MAX}}}\Z)[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*"
            r"(?:; ?charset=[A-Za-z0-9_-]+)?",
            "a media type such as text/html",
        ),
        "application/octet-stream",
        "Its media type.",
    ),
)

SECRET = Level(
    "an entry of secrets",
    Field("name", read_name(), REQUIRED, "The name of the secret in the pool of the slice."),
    Field("file", boolean(), False, "Whether the variable has the path of a file with the secret, not the secret."),
)

PAYLOAD = Level(
    "a payload",
    Field("command", Reader(_ARGUMENTS.takes, _command), None, "The program and its arguments."),
    Field("script", text_or_subs(SCRIPT_MAX), None, "Shell text: `/bin/sh -e` runs it, unless `shell` names another."),
    Field("shell", choice(Shell), "sh", "The shell that runs the script, with -e; found by the PATH of the task."),
    Field("python", matching(f"{_IDENTIFIERS}:{_IDENTIFIERS}", 'a text "module:function"'), None, "A Python function."),
    Field(
        "args",
        shorthand(constant(list, "a list of arguments"), list, constant(dict, "an object of named arguments")),
        None,
        "The arguments of the Python function: a list, or an object of named ones.",
    ),
    Field(
        "fresh",
        boolean(),
        False,
        "Whether the Python function gets a process of its own, which makes no other call before or after it.",
    ),
    Field("ansible", shorthand(_INNER_PATH, str, Reader(ANSIBLE.takes, read_play)), None, "A playbook, or a play."),
    Field("git", shorthand(_URL, str, Reader(GIT.takes, read_checkout)), None, "A repository, whose files are kept."),
    Field(
        "approval",
        shorthand(text_or_subs(DESCRIPTION_MAX), str, Reader(APPROVAL.takes, APPROVAL.read)),
        None,
        "A person decides.",
    ),
    Field("graph", constant(dict, "a graph document"), None, "A graph inside; the task ends as that graph does."),
    Field("launch", constant(dict, "what is launched"), None, "A template; only the server makes such tasks."),
    Field("noop", constant(bool, "true", only=True), None, "Nothing: a place where edges meet."),
    Field("env", pairs_of(_ENV_NAME, text_or_subs(ENV_VALUE_MAX, empty=True), ENV_MAX), (), "Environment variables."),
    Field(
        "secrets",
        pairs_of(_ENV_NAME, shorthand(read_name(), str, record(SECRET, dict)), SECRETS_MAX),
        (),
        "Variables that are filled with secrets of the pool, or with the path of a file that has the secret.",
    ),
    Field(
        "inputs",
        list_of(shorthand(_TREE, str, Reader(INPUT.takes, _input)), 0, INPUTS_MAX),
        (),
        "Files that are in the working folder when it starts: trees, and outputs of prerequisites, in order.",
    ),
    Field(
        "outputs",
        list_of(Reader(f"{_INNER_PATH.takes} or {OUTPUT.takes}", _output), 0, OUTPUTS_MAX),
        (),
        "Files and folders to keep: paths, patterns with `*`, `**`, `?` and `[...]`, and artifacts with a name.",
    ),
    Field(
        "caches",
        Reader("an object of paths by name", _caches),
        (),
        "Folders of the bot that later tasks of the same submitter find again; each name is put at its path.",
    ),
    Field(
        "cwd",
        _PATH,
        None,
        "The folder to start in; left out, a fresh one, and for a function without files the bot's own. "
        "Beside inputs or outputs a relative one is inside the fresh folder.",
    ),
    Field(
        "timeout",
        span(TIMEOUT_MIN_MS, TIMEOUT_MAX_MS),
        span_text(TIMEOUT_MS),
        "How long an attempt may take; an approval or a graph inside has no end of time without it.",
    ),
    Field("io_timeout", span(0, TIMEOUT_MAX_MS), "0s", "How long it may print nothing; 0s is for ever."),
    Field(
        "grace", span(0, GRACE_MAX_MS), span_text(GRACE_MS), "How long it may take to end itself before it is killed."
    ),
)

#: The reader of a payload.
PAYLOAD_READER = Reader(PAYLOAD.takes, _read)


# Secrets: a payload only names them.


@value
class SecretUse:
    """One secret that a payload names."""

    variable: str
    name: str  # empty for the secret bytes of a request
    is_file: bool = False  # the variable has the path of a file with the secret
    at: Path = ()  # the place in the payload


def secrets_of(payload: Payload) -> tuple[SecretUse, ...]:
    """List the secrets that a payload names, by variable, and the secret bytes of its request."""
    named = payload.get("secrets")
    uses = tuple(_secret_use(*each) for each in sorted(named.items())) if isinstance(named, dict) else ()
    if not payload.keys().isdisjoint(NEEDS):
        uses += tuple(SecretUse(variable, name, True, at) for variable, name, at in secret_uses(payload))
    return (*uses, _SECRET_BYTES) if HAS_SECRET_BYTES in payload else uses


def names_secrets(payload: Payload) -> bool:
    """Whether a payload names secrets of a pool."""
    return bool(payload.get("secrets")) or (not payload.keys().isdisjoint(NEEDS) and any(secret_uses(payload)))


_SECRET_BYTES = SecretUse(SECRET_BYTES_VARIABLE, "", is_file=True)


def _secret_use(variable: str, named: object) -> SecretUse:
    if isinstance(named, dict):
        return SecretUse(variable, str(named["name"]), named.get("file") is True, ("secrets", variable))
    return SecretUse(variable, str(named), at=("secrets", variable))


# Approvals: the question, and the decision of a person or of a time-out.


@value
class Question:
    """The message of an approval, and what happens after its timeout."""

    message: str
    on_timeout: Silence = Silence.DENY


@value
class Decision:
    """The decision of an approval; it is the result of its task, as JSON."""

    approved: bool
    at_ms: Millis
    by: str | None = None  # None after a time-out
    comment: str = ""
    timed_out: bool = False


def question(payload: Payload) -> Question:
    """Read what the payload of an approval asks."""
    asked = payload[Kind.APPROVAL]
    if isinstance(asked, dict):
        return Question(str(asked["message"]), Silence(asked.get("on_timeout", Silence.DENY)))
    return Question(str(asked))


def by_silence(asked: Question, now: Millis) -> Decision:
    """Return the decision after a time-out."""
    return Decision(asked.on_timeout is Silence.APPROVE, now, timed_out=True)


def patience_ms(payload: Payload) -> int | None:
    """Return how long what the server runs itself may take; None means without limit."""
    said = payload.get("timeout")
    return span_ms(said) if isinstance(said, str) else None


# Files: what a task takes, and from where.


def input_trees(payload: Payload) -> list[str]:
    """Return the digests of the trees that a valid payload names."""
    return [found for one in _inputs(payload) if (found := one if isinstance(one, str) else one.get("tree"))]


def input_labels(payload: object) -> list[tuple[int, str]]:
    """Return the labels whose outputs a payload takes, each with its place among the inputs."""
    found = payload.get("inputs") if isinstance(payload, Mapping) else None
    entries = enumerate(found if isinstance(found, list) else ())
    return [
        (place, label) for place, one in entries if isinstance(one, dict) and isinstance(label := one.get("from"), str)
    ]


def labels_used(payload: object) -> Iterator[tuple[Path, str]]:
    """Yield the labels of prerequisites that a payload names, each with its place."""
    yield from ((("inputs", place, "from"), label) for place, label in input_labels(payload))
    if isinstance(payload, Mapping):
        yield from (
            ((Kind.ANSIBLE.text, "extra_vars_from", place), label) for place, label in labels_of_variables(payload)
        )


def must_have_left(state: str) -> bool:
    """Say whether a prerequisite in this state has to have left the files that a task takes of it."""
    return state == State.SUCCESSFUL.text


def _inputs(payload: Payload) -> "list[Any]":
    found = payload.get("inputs")
    return found if isinstance(found, list) else []


# The slices of a task: one for its `dimensions`, or one for each entry of its `slices`.
#
# A slice's own payload is laid over the task's, field by field; a field is replaced whole, never merged. A slice that
# a bot runs and that names no pool is in the default one, whatever other dimensions it has.


class SliceFields(TypedDict, total=False):
    """What the tables have read of a slice."""

    dimensions: Dimensions
    expires: int
    wait_for_capacity: bool
    slots: int
    cpus: int  # in thousandths
    memory: int  # in MiB
    gpus: int
    payload: Payload


#: The fields with what a task takes of its bot.
RESOURCE_FIELDS = frozenset({"slots", "cpus", "memory", "gpus"})


class TaskFields(SliceFields, total=False):
    """What the tables have read of a task, as far as it is about slices: its only one, or several."""

    slices: tuple[SliceFields, ...]


def take_slices(task: TaskFields, at: Path, faults: Faults) -> tuple[Slice, ...]:
    """Take what describes slices out of the fields of a task, and make the slices of it; none when it is faulty."""
    if "slices" not in task:
        payload = task.pop("payload", _EMPTY)
        only = _slice(task, payload, True, at, faults)
        return () if only is None else (only,)
    for name in ("dimensions", "expires", "wait_for_capacity", *sorted(RESOURCE_FIELDS)):
        if task.pop(name, None) is not None:  # type: ignore[misc]
            faults.add((*at, name), "belongs to a slice; move it into the slices")
    slices = tuple(_overlaid(task.pop("slices"), task.pop("payload", _EMPTY), (*at, "slices"), faults))
    if len(slices) > 1 and any(each.kind in SERVER_KINDS for each in slices):
        faults.add((*at, "slices"), "has work that the server does itself, which needs no bot; keep one slice")
    return slices


_EMPTY: Payload = {}


def _overlaid(entries: tuple[SliceFields, ...], shared: Payload, at: Path, faults: Faults) -> Iterator[Slice]:
    for index, entry in enumerate(entries):
        payload = _laid_over(shared, entry.get("payload", _EMPTY))
        made = _slice(entry, payload, index + 1 == len(entries), (*at, index), faults)
        if made is not None:
            yield made


def _laid_over(shared: Payload, own: Payload) -> Payload:
    if own is BROKEN or shared is BROKEN:
        return BROKEN
    return {**shared, **own} if own else shared


def _slice(fields: SliceFields, payload: Payload, last: bool, at: Path, faults: Faults) -> Slice | None:
    """Make one slice, and take its fields out of `fields`."""
    dimensions = fields.pop("dimensions", ())
    expires_ms = fields.pop("expires", EXPIRES_MS)
    wait_for_capacity = fields.pop("wait_for_capacity", last)
    takes = () if RESOURCE_FIELDS.isdisjoint(fields) else _take_resources(fields)
    kind = None if payload is BROKEN else kind_of(payload, (*at, "payload"), faults)
    if kind is None:
        return None
    if kind in SERVER_KINDS:
        for name in takes:
            faults.add((*at, name), "means nothing to what the server runs itself; remove it")
    asked = dimensions if kind in SERVER_KINDS else with_pool(dimensions)
    if takes:
        asked = with_taken(asked, Resources(**takes))
    if kind in NEEDS:
        asked = with_need(asked, *NEEDS[kind])
    return Slice(asked, payload, kind, expires_ms, wait_for_capacity)


def _take_resources(fields: SliceFields) -> dict[str, int]:
    """Take what a task takes of its bot out of its fields."""
    return {name: fields.pop(name) for name in sorted(RESOURCE_FIELDS & fields.keys())}  # type: ignore[misc]
