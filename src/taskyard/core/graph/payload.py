"""What a task runs: exactly one kind of work, and what surrounds it.

A payload stays the mapping that was submitted; these tables only check it. `{"$subs": ...}` may stand wherever a
text is wanted, except for names: of secrets, of Python functions, of environment variables.

- `command`: an argument list. `script`: shell text, for the shell of `shell`. `noop: true`: nothing; it ends at once.
- `python`: `module:function`; `args` is a list of positional or an object of named JSON arguments.
- `ansible`: a playbook's path, or an object with `playbook`, or with `module` for an ad-hoc command.
- `approval`: what a person is asked, or an object; `timeout` is how long, and `on_timeout` what silence means.
- `graph`: a graph document, run as a graph of its own for each attempt; its `$subs` are about its own labels.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum, unique
from types import MappingProxyType
from typing import TypedDict

from taskyard.core.durations import span_ms, span_text
from taskyard.core.graph.errors import Faults, Path, quoted
from taskyard.core.graph.model import (
    ARGUMENT_MAX,
    COMMAND_MAX,
    DESCRIPTION_MAX,
    ENV_MAX,
    ENV_NAME_MAX,
    ENV_VALUE_MAX,
    EXPIRES_MS,
    FORKS_MAX,
    GRACE_MAX_MS,
    GRACE_MS,
    OUTPUTS_MAX,
    PATH_MAX,
    PLAY_TAGS_MAX,
    SCRIPT_MAX,
    SECRETS_MAX,
    TIMEOUT_MAX_MS,
    TIMEOUT_MIN_MS,
    TIMEOUT_MS,
    VERBOSITY_MAX,
    Payload,
    Slice,
)
from taskyard.core.graph.scalars import (
    REQUIRED,
    Field,
    Level,
    Reader,
    boolean,
    choice,
    constant,
    integer,
    list_of,
    matching,
    pairs_of,
    read_name,
    shorthand,
    span,
    text_or_subs,
)
from taskyard.core.matching import Dimensions, with_pool
from taskyard.core.states import Kind, Millis
from taskyard.core.structs import value

KINDS: Mapping[str, Kind] = {str(kind): kind for kind in Kind}
#: Kinds that the server runs itself: no bot, so no choice of slices, and no share of a pool.
SERVER_KINDS = frozenset({Kind.APPROVAL, Kind.GRAPH, Kind.NOOP})
#: Kinds beside which only a `timeout` means something, as people call them; and what surrounds every other kind.
ALONE: Mapping[Kind, str] = {Kind.APPROVAL: "an approval", Kind.GRAPH: "a graph inside, whose tasks have their own"}
_SURROUNDINGS = frozenset({"env", "secrets", "outputs", "cwd", "io_timeout", "grace"})
#: Stands for a payload that is no object, so that it is not taken for a missing one.
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
    """What it means when nobody answers an approval in time."""

    DENY = "deny"
    APPROVE = "approve"


def kind_of(payload: Payload, at: Path, faults: Faults) -> Kind | None:
    """Name the one kind of a payload, slice laid over task; note what does not go together in it."""
    kinds = [KINDS[name] for name in payload if name in KINDS]
    if len(kinds) != 1:
        kept = f"has {' and '.join(sorted(kinds))}; keep one"
        faults.add(at, kept if kinds else f"says nothing to run; add one of {', '.join(Kind)}")
        return None
    kind = kinds[0]
    if "args" in payload and kind is not Kind.PYTHON:
        faults.add((*at, "args"), 'belongs to "python"; a command holds its own arguments')
    if payload.get("fresh") and kind is not Kind.PYTHON:
        faults.add((*at, "fresh"), 'belongs to "python"; a program has a process of its own anyway')
    if "shell" in payload and kind is not Kind.SCRIPT:
        faults.add((*at, "shell"), 'belongs to "script"; a command names its program itself')
    if "secrets" in payload:
        _refuse_shared(payload, at, faults)
    if kind in ALONE:
        for idle in sorted(payload.keys() & _SURROUNDINGS):
            faults.add((*at, idle), f"means nothing to {ALONE[kind]}; remove it")
    return kind


def payloads(task: Mapping[str, object], at: Path) -> Iterator[tuple[Path, Mapping[str, object]]]:
    """Yield the payloads that are written in a task: its own, and those of its slices."""
    slices = task.get("slices")
    entries = enumerate(slices) if isinstance(slices, list) else ()
    for place, holder in ((at, task), *(((*at, "slices", index), entry) for index, entry in entries)):
        payload = holder.get("payload") if isinstance(holder, Mapping) else None
        if isinstance(payload, dict):
            yield (*place, "payload"), payload


def _read(value: object, at: Path, faults: Faults) -> Payload:
    """Check a payload and give it as it is: a faulty field is noted, but it still counts as present."""
    PAYLOAD.read(value, at, faults)
    return value if isinstance(value, dict) else BROKEN


def _refuse_shared(payload: Payload, at: Path, faults: Faults) -> None:
    env, secrets = payload.get("env"), payload["secrets"]
    if isinstance(env, dict) and isinstance(secrets, dict):
        for shared in sorted(env.keys() & secrets.keys()):
            faults.add((*at, "secrets", shared), "is in env too; keep one")


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


def _output(value: object, at: Path, faults: Faults) -> object:
    path = _PATH.read(value, at, faults)
    if isinstance(path, str) and (fault := _output_fault(path)):
        faults.add(at, fault)
    return path


def _output_fault(path: str) -> str | None:
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or "\\" in path:
        return "must be a relative path with / and without .."
    if "" in parts or "." in parts:
        return f"is not in its shortest form; write {quoted('/'.join(part for part in parts if part not in ('', '.')))}"
    return None


def _ansible(value: object, at: Path, faults: Faults) -> object:
    found = ANSIBLE.read(value, at, faults)
    if isinstance(value, dict) and ("playbook" in value) == ("module" in value):
        faults.add(at, 'needs either "playbook" or "module"')
    return found


_ARGUMENT = text_or_subs(ARGUMENT_MAX, empty=True)
_ARGUMENTS = list_of(_ARGUMENT, 1, COMMAND_MAX)
_LINE = text_or_subs(PATH_MAX)
_PATH = text_or_subs(PATH_MAX)
_ENV_NAME = matching(
    rf"[A-Za-z_][A-Za-z0-9_]{{0,{ENV_NAME_MAX - 1}}}", f"a name of letters, digits and _ (at most {ENV_NAME_MAX})"
)
_IDENTIFIERS = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_ANY_OBJECT = constant(dict, "an object")
_TAGS = list_of(_LINE, 0, PLAY_TAGS_MAX)

ANSIBLE = Level(
    "a play",
    Field("playbook", _LINE, None, "The playbook's path."),
    Field("module", _LINE, None, "A module to run instead of a playbook (an ad-hoc command)."),
    Field("module_args", text_or_subs(ARGUMENT_MAX), None, "The arguments of that module."),
    Field("inventory", shorthand(_LINE, str, list_of(_LINE, 1, PLAY_TAGS_MAX)), None, "Inventory paths or host lists."),
    Field("limit", _LINE, None, "The pattern of hosts to keep to."),
    Field("tags", _TAGS, (), "Run only what has one of these tags."),
    Field("skip_tags", _TAGS, (), "Leave out what has one of these tags."),
    Field("extra_vars", _ANY_OBJECT, None, "Variables that win over all others."),
    Field("forks", integer(1, FORKS_MAX), None, "How many hosts at once; left out, Ansible's own setting."),
    Field("verbosity", integer(0, VERBOSITY_MAX), 0, "How much Ansible tells, as the number of its -v."),
    Field("check", boolean(), False, "Change nothing; say what would change."),
    Field("diff", boolean(), False, "Show the differences that are made."),
)

APPROVAL = Level(
    "an approval",
    Field("message", text_or_subs(DESCRIPTION_MAX), REQUIRED, "What the person is asked."),
    Field("on_timeout", choice(Silence), "deny", "What it means when nobody answers within the payload's timeout."),
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
    Field("ansible", shorthand(_LINE, str, Reader(ANSIBLE.takes, _ansible)), None, "A playbook, or a play."),
    Field(
        "approval",
        shorthand(text_or_subs(DESCRIPTION_MAX), str, Reader(APPROVAL.takes, APPROVAL.read)),
        None,
        "A person decides.",
    ),
    Field("graph", constant(dict, "a graph document"), None, "A graph inside; the task ends as that graph does."),
    Field("noop", constant(bool, "true", only=True), None, "Nothing: a place where edges meet."),
    Field("env", pairs_of(_ENV_NAME, text_or_subs(ENV_VALUE_MAX, empty=True), ENV_MAX), (), "Environment variables."),
    Field(
        "secrets",
        pairs_of(_ENV_NAME, read_name(), SECRETS_MAX),
        (),
        "Environment variables that are filled with named secrets.",
    ),
    Field("outputs", list_of(Reader("a relative path", _output), 0, OUTPUTS_MAX), (), "Files and folders to keep."),
    Field("cwd", _PATH, None, "The folder to start in; left out, a fresh one, and for a function the bot's own."),
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


# Approvals: the question, and the decision of a person or of a time-out.


@value
class Question:
    """What a person is asked, and what it means when nobody answers."""

    message: str
    on_timeout: Silence = Silence.DENY


@value
class Decision:
    """What was decided about an approval; it is the result of its task, as JSON."""

    approved: bool
    at_ms: Millis
    by: str | None = None  # nobody, if time was over
    comment: str = ""
    timed_out: bool = False


def question(payload: Payload) -> Question:
    """Read what the payload of an approval asks."""
    asked = payload[Kind.APPROVAL]
    if isinstance(asked, dict):
        return Question(str(asked["message"]), Silence(asked.get("on_timeout", Silence.DENY)))
    return Question(str(asked))


def by_silence(asked: Question, now: Millis) -> Decision:
    """Decide for whoever did not."""
    return Decision(asked.on_timeout is Silence.APPROVE, now, timed_out=True)


def patience_ms(payload: Payload) -> int | None:
    """Say how long what the server runs itself may take; None is for ever: a person, or a graph, takes its time."""
    said = payload.get("timeout")
    return span_ms(said) if isinstance(said, str) else None


# The slices of a task: one for its `dimensions`, or one for each entry of its `slices`.
#
# A slice's own payload is laid over the task's, field by field; a field is replaced whole, never merged. A slice that
# a bot runs and that names no pool is in the default one, whatever else it asks for.


class SliceFields(TypedDict, total=False):
    """What the tables have read of a slice."""

    dimensions: Dimensions
    expires: int
    wait_for_capacity: bool
    payload: Payload


class TaskFields(SliceFields, total=False):
    """What the tables have read of a task, as far as it is about slices: its only one, or several."""

    slices: tuple[SliceFields, ...]


def take_slices(task: TaskFields, at: Path, faults: Faults) -> tuple[Slice, ...]:
    """Take what describes slices out of the fields of a task, and make the slices of it; none when it is faulty."""
    if "slices" not in task:
        payload = task.pop("payload", _EMPTY)
        only = _slice(task, payload, True, (*at, "payload"), faults)
        return () if only is None else (only,)
    for name in ("dimensions", "expires", "wait_for_capacity"):
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
        made = _slice(entry, payload, index + 1 == len(entries), (*at, index, "payload"), faults)
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
    kind = None if payload is BROKEN else kind_of(payload, at, faults)
    if kind is None:
        return None
    asked = dimensions if kind in SERVER_KINDS else with_pool(dimensions)
    return Slice(asked, payload, kind, expires_ms, wait_for_capacity)
