"""Payloads and slices: what a task runs, and the ways to run it."""

import pytest

from taskyard.core.durations import DAY_MS
from taskyard.core.graph import Fault, Slice, validate
from taskyard.core.graph.payload import SERVER_KINDS
from taskyard.core.states import Kind
from tests.core.graph.documents import NOOP, faults_of, graph, node, payload, read_task, task
from tests.each_row import each_row

SUBS = {"$subs": "taskId:a"}
KINDS = "command, script, python, ansible, git, approval, graph, noop"
PATH = "must be a relative path with / and without .."

NAMED = "a string of 1 to 255 characters, none hidden, or an object with the fields of an entry of secrets"


@each_row(
    ("fields", "kind"),
    [
        ({"command": ["make", "", SUBS]}, Kind.COMMAND),
        ({"script": "echo"}, Kind.SCRIPT),
        ({"script": SUBS}, Kind.SCRIPT),
        ({"python": "pkg.mod:Class.method"}, Kind.PYTHON),
        ({"python": "m:f", "args": [1, {"deep": [SUBS]}]}, Kind.PYTHON),
        ({"python": "m:f", "args": {"x": SUBS}}, Kind.PYTHON),
        ({"ansible": "site.yml"}, Kind.ANSIBLE),
        ({"ansible": {"playbook": SUBS, "inventory": ["a", "b"], "forks": 5, "check": True}}, Kind.ANSIBLE),
        ({"ansible": {"module": "ping", "module_args": "x=1", "inventory": "hosts", "verbosity": 5}}, Kind.ANSIBLE),
        ({"ansible": {"playbook": "x", "inventory": ["one"], "tags": [], "extra_vars": {"v": [1]}}}, Kind.ANSIBLE),
        ({"approval": "Ship it?", "timeout": "1d"}, Kind.APPROVAL),
        ({"approval": {"message": "Ship it?", "on_timeout": "approve"}}, Kind.APPROVAL),
        ({"graph": {"tasks": {}}}, Kind.GRAPH),
        ({"noop": True}, Kind.NOOP),
        ({"command": ["npm"], "caches": {"npm": ".npm", "go-build": "deep/cache"}}, Kind.COMMAND),
        (
            {
                "script": "x",
                "env": {"A_1": "", "B": SUBS},
                "secrets": {"C": "deploy key"},
                "outputs": ["dist/app", "*.log", SUBS],
                "cwd": "/srv",
                "timeout": "7d",
                "io_timeout": "0s",
                "grace": "0s",
            },
            Kind.SCRIPT,
        ),
    ],
)
def test_a_payload_has_one_kind(fields: dict[str, object], kind: Kind) -> None:
    only = read_task(payload(**fields)).slices
    needed = ((kind.text, (">=2",)),) if kind is Kind.ANSIBLE else ()
    dimensions = () if kind in SERVER_KINDS else (*needed, ("pool", ("default",)))
    assert only == (Slice(dimensions, fields, kind),)


@each_row(
    ("fields", "path", "message"),
    [
        ({}, "", f"says nothing to run; add one of {KINDS}"),
        ({"env": {}}, "", f"says nothing to run; add one of {KINDS}"),
        ({"script": "x", "command": ["x"]}, "", "has command and script; keep one"),
        ({"command": []}, ".command", "must hold 1 to 1024 entries; got 0"),
        ({"command": ["x"] * 1025}, ".command", "must hold 1 to 1024 entries; got 1025"),
        ({"command": ["x", 5]}, ".command[1]", 'must be a string; write "5"'),
        ({"command": ["x" * 131_072]}, ".command[0]", "must be a string of 0 to 131071 characters; got 131072"),
        (
            {"command": [{"$subs": "taskId:a", "x": 1}]},
            ".command[0]",
            "must be a string of 0 to 131071 characters; got an object",
        ),
        ({"script": ""}, ".script", "must be a string of 1 to 262144 characters; got 0"),
        ({"python": "mod.fn"}, ".python", 'must be a text "module:function"; got "mod.fn"'),
        ({"python": SUBS}, ".python", 'must be a text "module:function"; got an object'),
        (
            {"python": "m:f", "args": "x"},
            ".args",
            'must be a list of arguments, or an object of named arguments; got "x"',
        ),
        ({"command": ["x"], "args": []}, ".args", 'belongs to "python"; a command holds its own arguments'),
        ({"command": ["x"], "shell": "bash"}, ".shell", 'belongs to "script"; a command names its program itself'),
        ({"script": "x", "fresh": True}, ".fresh", 'belongs to "python"; a program has a process of its own anyway'),
        (
            {"ansible": {"playbook": "x", "fork": 1}},
            ".ansible.fork",
            'unknown field "fork" of a play; did you mean "forks"?',
        ),
        (
            {"ansible": 5},
            ".ansible",
            "must be a relative path, or an object with the fields of a play; got 5",
        ),
        ({"ansible": ""}, ".ansible", "must be a string of 1 to 4096 characters; got 0"),
        (
            {"approval": True},
            ".approval",
            "must be a string of 1 to 32768 characters, or an object with the fields of an approval; got true",
        ),
        ({"approval": {}}, ".approval", 'needs the field "message"'),
        (
            {"approval": {"message": "x", "on_timeout": "yes"}},
            ".approval.on_timeout",
            'must be one of deny, approve; got "yes"',
        ),
        ({"approval": "?", "cwd": "/srv"}, ".cwd", "means nothing to an approval; remove it"),
        (
            {"graph": {"tasks": {}}, "env": {}},
            ".env",
            "means nothing to a graph inside, whose tasks have their own; remove it",
        ),
        ({"graph": []}, ".graph", "must be a graph document; got a list"),
        ({"noop": False}, ".noop", "must be true; got false"),
        ({"noop": 1}, ".noop", "must be true; got 1"),
        (
            {"noop": True, "env": {"1A": "x"}},
            ".env.1A",
            'must be a name of letters, digits and _ (at most 64); got "1A"',
        ),
        (
            {"noop": True, "env": {"A\n": "x"}},
            '.env["A\\u000a"]',
            'must be a name of letters, digits and _ (at most 64); got "A\\u000a"',
        ),
        ({"noop": True, "env": {"A": 5}}, ".env.A", 'must be a string; write "5"'),
        ({"noop": True, "env": {"A": None}}, ".env.A", "must be a string of 0 to 32768 characters; got null"),
        (
            {"noop": True, "env": {f"A{index}": "" for index in range(129)}},
            ".env",
            "must hold at most 128 entries; got 129",
        ),
        (
            {"noop": True, "secrets": {"A": 5}},
            ".secrets.A",
            f"must be {NAMED}; got 5",
        ),
        ({"noop": True, "secrets": {"A": {}}}, ".secrets.A", 'needs the field "name"'),
        ({"noop": True, "secrets": {"A": {"name": "x", "file": 1}}}, ".secrets.A.file", "must be true or false; got 1"),
        (
            {"noop": True, "secrets": {"TASKYARD_A": "x"}},
            ".secrets.TASKYARD_A",
            "is for the bot to set; do not begin it with TASKYARD_",
        ),
        ({"noop": True, "env": {"A": ""}, "secrets": {"A": "x"}}, ".secrets.A", "is in env too; keep one"),
        ({"noop": True, "outputs": ["/etc"]}, ".outputs[0]", PATH),
        ({"script": "x", "caches": {"npm": "../up"}}, ".caches.npm", PATH),
        ({"script": "x", "caches": {"npm": "a/./b"}}, ".caches.npm", 'is not in its shortest form; write "a/b"'),
        (
            {"script": "x", "caches": {"npm": SUBS}},
            ".caches.npm",
            "must be a string of 1 to 4096 characters; got an object",
        ),
        (
            {"script": "x", "caches": {"Npm": "a"}},
            ".caches.Npm",
            'must be a name of a-z, 0-9, _ and - (at most 64); got "Npm"',
        ),
        (
            {"script": "x", "caches": {"a": "x", "b": "x"}},
            ".caches.b",
            "has the path of the cache a; each needs its own",
        ),
        (
            {"script": "x", "caches": {"a": "x", "b": "x/y"}},
            ".caches.b",
            "is inside the cache a; give it a path of its own",
        ),
        (
            {"script": "x", "caches": {f"c{index}": f"c{index}" for index in range(17)}},
            ".caches",
            "must hold at most 16 entries; got 17",
        ),
        (
            {"python": "m:f", "caches": {"a": "x"}},
            ".caches",
            "belongs to a command or a script; a function has no folder of its own",
        ),
        (
            {"script": "x", "cwd": "/srv", "caches": {"a": "x"}},
            ".caches",
            "is put into the fresh folder of a task, where this one does not start; remove cwd",
        ),
        ({"noop": True, "outputs": ["a/../b"]}, ".outputs[0]", PATH),
        ({"noop": True, "outputs": ["a\\b"]}, ".outputs[0]", PATH),
        ({"noop": True, "outputs": ["./a//b/"]}, ".outputs[0]", 'is not in its shortest form; write "a/b"'),
        ({"noop": True, "outputs": [""]}, ".outputs[0]", "must be a string of 1 to 4096 characters; got 0"),
        (
            {"noop": True, "timeout": "0s"},
            ".timeout",
            'must be a duration from 1s to 7d, such as 90s or 1h30m; got "0s"',
        ),
        ({"noop": True, "grace": "61m"}, ".grace", 'must be a duration from 0s to 1h, such as 90s or 1h30m; got "61m"'),
        ({"comand": ["x"], "noop": True}, ".comand", 'unknown field "comand" of a payload; did you mean "command"?'),
    ],
)
def test_a_bad_payload_is_refused(fields: dict[str, object], path: str, message: str) -> None:
    assert faults_of(payload(**fields)) == [(f"tasks.a.task.payload{path}", message)]


def test_what_the_server_does_itself_weighs_nothing() -> None:
    assert read_task(task(payload=dict(NOOP), weight=5)).weight == 0
    assert read_task(task(weight=5)).weight == 5


def test_a_slice_is_laid_over_the_task_field_by_field() -> None:
    document = task(
        payload={"command": ["x"], "env": {"A": "1", "B": "2"}},
        slices=[{"payload": {"env": {"A": "3"}}}, {"dimensions": {"os": "b"}, "expires": "1m"}],
    )
    assert read_task(document).slices == (
        Slice(
            (("pool", ("default",)),),
            {"command": ["x"], "env": {"A": "3"}},
            Kind.COMMAND,
            DAY_MS,
            wait_for_capacity=False,
        ),
        Slice(
            (("os", ("b",)), ("pool", ("default",))),
            {"command": ["x"], "env": {"A": "1", "B": "2"}},
            Kind.COMMAND,
            60_000,
            wait_for_capacity=True,
        ),
    )


@pytest.mark.parametrize(
    ("slices", "path", "message"),
    [
        ([], "", "must hold 1 to 8 entries; got 0"),
        ([{}] * 9, "", "must hold 1 to 8 entries; got 9"),
        ({}, "", "must be a list of 1 to 8 entries, each an object with the fields of a slice; got an object"),
        ([5], "[0]", "must be an object with the fields of a slice; got 5"),
        ([{"payload": 5}], "[0].payload", "must be an object with the fields of a payload; got 5"),
        ([{"payload": {"script": "x"}}], "[0].payload", "has command and script; keep one"),
        (
            [{"priority": 1}],
            "[0].priority",
            (
                'unknown field "priority" of a slice; its fields are dimensions, expires, wait_for_capacity, slots, '
                "cpus, memory, gpus, payload"
            ),
        ),
        ([{"expires": "8d"}], "[0].expires", 'must be a duration from 1s to 7d, such as 90s or 1h30m; got "8d"'),
    ],
)
def test_bad_slices_are_refused(slices: object, path: str, message: str) -> None:
    assert faults_of(task(slices=slices)) == [(f"tasks.a.task.slices{path}", message)]


@pytest.mark.parametrize(
    ("field", "value"), [("dimensions", {"os": "x"}), ("expires", "1m"), ("wait_for_capacity", False)]
)
def test_fields_of_a_slice_are_refused_beside_slices(field: str, value: object) -> None:
    message = "belongs to a slice; move it into the slices"
    assert faults_of(task(slices=[{}], **{field: value})) == [(f"tasks.a.task.{field}", message)]


def test_each_slice_has_something_to_run() -> None:
    document = task(payload={}, slices=[{"payload": {"script": "x"}}, {}])
    message = f"says nothing to run; add one of {KINDS}"
    assert faults_of(document) == [("tasks.a.task.slices[1].payload", message)]


def test_what_the_server_does_itself_has_no_second_slice() -> None:
    message = "has work that the server does itself, which needs no bot; keep one slice"
    slices: list[object] = [{"payload": {"noop": True}}, {"payload": {"script": "x"}}]
    assert faults_of(task(payload={}, slices=slices)) == [("tasks.a.task.slices", message)]
    assert faults_of(task(payload={}, slices=slices[:1])) == []


def test_a_graph_inside_is_judged_with_its_place() -> None:
    inner = graph(x=node(requires=["y"]), z=node(requires=["z"]))
    at = "tasks.a.task.payload.graph.tasks"
    assert faults_of(payload(graph=inner)) == [
        (f"{at}.x.requires[0]", 'unknown label "y"; no task of the graph has it'),
        (f"{at}.z.requires[0]", '"z" requires itself; remove it'),
    ]


def test_a_graph_inside_a_slice_is_judged_too() -> None:
    document = task(payload={}, slices=[{"payload": {"graph": {}}}])
    assert faults_of(document) == [("tasks.a.task.slices[0].payload.graph", 'needs the field "tasks"')]


def test_graphs_are_nested_eight_deep_and_no_deeper() -> None:
    document: dict[str, object] = {"tasks": {}}
    for _ in range(8):
        document = payload(graph=document)
    assert faults_of(document) == []
    at = ".".join(["tasks.a.task.payload.graph"] * 9)
    assert faults_of(payload(graph=document)) == [(at, "is nested too deep; at most 8 graphs in each other")]


def test_tasks_of_a_graph_inside_count() -> None:
    document = payload(graph=graph(x=node(), y=node()))
    assert validate(document, tasks_max=3).graph is not None
    expected = Fault("tasks.a.task.payload.graph.tasks", "makes more than 1 task; split it")
    assert validate(document, tasks_max=2).faults == (expected,)


@pytest.mark.parametrize(
    ("around", "within", "clashes"),
    [
        ({"key": "door"}, {"key": "door"}, True),
        ({"key": "door", "party": "a"}, {"key": "door", "party": "b"}, True),
        ({"key": "door", "party": "a"}, {"key": "door", "party": "a"}, False),
        ({"key": "door"}, {"key": "gate"}, False),
    ],
)
def test_a_task_inside_may_not_wait_for_the_one_around_it(
    around: dict[str, str], within: dict[str, str], clashes: bool
) -> None:
    deep = graph(low=node({"graph": task(mutexes=[within])}))
    found = faults_of(graph(outer={"task": {"payload": {"graph": deep}, "mutexes": [around]}}))
    at = "tasks.outer.task.payload.graph.tasks.low.task.payload.graph.tasks.a.task.mutexes"
    assert found == ([(at, '"door" is held by the task around it; keep one of them')] if clashes else [])
