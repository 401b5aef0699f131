"""Validation of whole documents: a graph, or every fault."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taskyard.core.durations import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from taskyard.core.graph import (
    FIELDS,
    REQUIRED,
    Edge,
    Existing,
    Fault,
    Field,
    GraphDefinition,
    Mutex,
    Payload,
    Reruns,
    Slice,
    Task,
    Validation,
    When,
    validate,
)
from taskyard.core.graph.errors import Faults
from taskyard.core.graph.model import EDGES_MAX, Allowance
from taskyard.core.graph.references import Resolver, read_labels
from taskyard.core.graph.scalars import Reader
from taskyard.core.states import Disconnect, Impossible, Join, Kind, Millis, On
from tests.core.graph.documents import NOOP, chain, faults_of, graph, node, read, read_task, task
from tests.each_row import each_row

TASKCLUSTER = {
    "routing": "try",
    "tasks": {
        "build-task": {"requires": [], "reruns": 0, "task": {"routing": "linux", "payload": {"command": ["make"]}}},
        "test-task-1": {
            "requires": ["build-task"],
            "reruns": 5,
            "task": {
                "routing": "linux",
                "payload": {"command": ["test", {"$subs": "taskId:build-task"}]},
            },
        },
    },
}

NIGHTLY = {
    "name": "nightly",
    "routing": "nightly",
    "tasks": {
        "build": {
            "task": {
                "routing": "build",
                "dimensions": {"pool": "default", "os": "Linux"},
                "idempotent": True,
                "payload": {"command": ["make", "all"], "outputs": ["dist/app"], "timeout": "30m"},
            }
        },
        "test": {
            "requires": ["build"],
            "reruns": 2,
            "task": {
                "priority": 50,
                "deadline": "2h",
                "retries": 2,
                "mutexes": [{"key": "device:7"}, {"key": "repo", "party": "readers"}],
                "slices": [
                    {
                        "dimensions": {"pool": "lab", "gpu": "h100"},
                        "expires": "10m",
                        "payload": {"command": ["pytest"]},
                    },
                    {
                        "dimensions": {"pool": "default"},
                        "wait_for_capacity": True,
                        "payload": {"command": ["pytest", "-m", "not gpu"]},
                    },
                ],
                "payload": {"env": {"BUILD": {"$subs": "taskId:build"}}, "secrets": {"TOKEN": "deploy"}},
            },
        },
        "page-someone": {
            "requires": [{"task": "test", "on": "failure"}],
            "task": {"payload": {"script": "echo red | mail -s red ops"}},
        },
    },
}


def command(*arguments: object) -> Slice:
    return Slice((("pool", ("default",)),), {"command": list(arguments)}, Kind.COMMAND)


def test_taskclusters_document_is_read_unchanged() -> None:
    build = Task("build-task", (command("make"),), routing="linux")
    test = Task(
        "test-task-1",
        (command("test", {"$subs": "taskId:build-task"}),),
        requires=(Edge("build-task", On.SUCCESS),),
        reruns=Reruns(5),
        routing="linux",
    )
    assert read(TASKCLUSTER) == GraphDefinition(routing="try", tasks={"build-task": build, "test-task-1": test})


def test_the_document_of_a_fleet_is_read_whole() -> None:
    shared: Payload = {"env": {"BUILD": {"$subs": "taskId:build"}}, "secrets": {"TOKEN": "deploy"}}
    build = Task(
        "build",
        (
            Slice(
                (("os", ("Linux",)), ("pool", ("default",))),
                {"command": ["make", "all"], "outputs": ["dist/app"], "timeout": "30m"},
                Kind.COMMAND,
            ),
        ),
        routing="build",
        idempotent=True,
    )
    test = Task(
        "test",
        (
            Slice(
                (("gpu", ("h100",)), ("pool", ("lab",))),
                {**shared, "command": ["pytest"]},
                Kind.COMMAND,
                expires_ms=10 * MINUTE_MS,
                wait_for_capacity=False,
            ),
            Slice(
                (("pool", ("default",)),),
                {**shared, "command": ["pytest", "-m", "not gpu"]},
                Kind.COMMAND,
                DAY_MS,
                True,
            ),
        ),
        requires=(Edge("build"),),
        reruns=Reruns(2),
        priority=50,
        deadline=When(2 * HOUR_MS, fixed=False),
        mutexes=(Mutex("device:7"), Mutex("repo", "readers")),
    )
    page = Task(
        "page-someone",
        (Slice((("pool", ("default",)),), {"script": "echo red | mail -s red ops"}, Kind.SCRIPT),),
        requires=(Edge("test", On.FAILURE),),
    )
    expected = GraphDefinition("nightly", "nightly", {"build": build, "test": test, "page-someone": page})
    assert read(NIGHTLY) == expected
    assert list(read(NIGHTLY).tasks) == ["build", "test", "page-someone"]


def test_every_field_of_a_task_arrives() -> None:
    document = {
        "name": "all",
        "description": "Everything.",
        "tags": {"team": "infra", "area": "build"},
        "tasks": {
            "first": node(),
            "a": {
                "requires": [{"task": "first", "on": "always"}],
                "reruns": {"count": 3, "delay": "10s", "factor": 2, "exit_codes": [75, 1]},
                "join": "any",
                "on_impossible": "skip",
                "task": {
                    "routing": "r-1_A",
                    "dimensions": {"pool": "lab"},
                    "expires": "5m",
                    "wait_for_capacity": False,
                    "priority": 0,
                    "deadline": "2031-05-01T08:00:00Z",
                    "not_before": "90s",
                    "retries": 0,
                    "idempotent": True,
                    "weight": 8,
                    "mutexes": [],
                    "limits": {"licence": 2, "gpu": 1},
                    "disconnect": "keep",
                    "tags": {"b": "2", "a": ""},
                    "description": "One.",
                    "payload": {"script": "true"},
                },
            },
        },
    }
    expected = Task(
        "a",
        (Slice((("pool", ("lab",)),), {"script": "true"}, Kind.SCRIPT, 5 * MINUTE_MS, False),),
        requires=(Edge("first", On.ALWAYS),),
        join=Join.ANY,
        on_impossible=Impossible.SKIP,
        reruns=Reruns(3, 10 * SECOND_MS, 2.0, (75, 1)),
        routing="r-1_A",
        priority=0,
        deadline=When(1_935_388_800_000, fixed=True),
        not_before=When(90 * SECOND_MS, fixed=False),
        retries=0,
        idempotent=True,
        weight=8,
        limits=(("gpu", 1), ("licence", 2)),
        disconnect=Disconnect.KEEP,
        tags=(("a", ""), ("b", "2")),
        description="One.",
    )
    found = read(document)
    assert found.tasks["a"] == expected
    assert (found.name, found.description) == ("all", "Everything.")
    assert found.tags == (("area", "build"), ("team", "infra"))


def test_an_empty_graph_is_a_graph() -> None:
    assert read({"tasks": {}}) == GraphDefinition()


def test_a_payload_is_the_submitters_own_object() -> None:
    own = {"command": ["true"]}
    assert read_task({"tasks": {"a": {"task": {"payload": own}}}}).slices[0].payload is own


def test_every_fault_is_listed_at_once() -> None:
    document = {
        "nam": "x",
        "routing": "a.b",
        "tasks": {
            "build": {"task": {"payload": {"command": ["make"]}, "priority": 256}},
            "test": {"requires": ["biuld", "build", "build", "test"], "reruns": -1, "task": {"payload": {}}},
            "a b": {"requires": ["c"]},
            "c": {"requires": ["a b"], "task": {"payload": {"script": {"$subs": "taskId:tset"}}}},
        },
    }
    assert faults_of(document) == [
        ("nam", 'unknown field "nam" of a graph; did you mean "name"?'),
        ("routing", 'must be at most 10 of the characters A-Z a-z 0-9 _ -; got "a.b"'),
        ("tasks.build.task.priority", "must be an integer from 0 to 255; got 256"),
        ("tasks.test.reruns", "must be an integer from 0 to 999; got -1"),
        ("tasks.test.requires[0]", 'unknown label "biuld"; did you mean "build"?'),
        ("tasks.test.requires[2]", 'repeats "build" on success; require it once'),
        ("tasks.test.requires[3]", '"test" requires itself; remove it'),
        (
            "tasks.test.task.payload",
            "says nothing to run; add one of command, script, python, ansible, git, approval, graph, noop",
        ),
        ('tasks["a b"]', 'needs the field "task"'),
        ("tasks.c.task.payload.script.$subs", 'unknown label "tset"; did you mean "test"?'),
        (
            'tasks["a b"].requires',
            'is a cycle, each requiring the next: "a b" -> c -> "a b"; remove one edge',
        ),
    ]


@each_row(
    ("document", "faults"),
    [
        (None, [("", "must be an object with the fields of a graph; got null")]),
        ([], [("", "must be an object with the fields of a graph; got a list")]),
        ("graph", [("", 'must be an object with the fields of a graph; got "graph"')]),
        ({}, [("", 'needs the field "tasks"')]),
        ({"tasks": []}, [("tasks", "must be an object of nodes by label; got a list")]),
        ({"tasks": {"a": None}}, [("tasks.a", "must be an object with the fields of a node; got null")]),
        ({"tasks": {"a": {}}}, [("tasks.a", 'needs the field "task"')]),
        (
            {"tasks": {"a": {"task": 5}}},
            [("tasks.a.task", "must be an object with the fields of a task; got 5")],
        ),
        (
            {"tasks": {"a": {"task": {"payload": []}}}},
            [("tasks.a.task.payload", "must be an object with the fields of a payload; got a list")],
        ),
        (
            {"tasks": {"a": {"task": {}}}},
            [
                (
                    "tasks.a.task.payload",
                    "says nothing to run; add one of command, script, python, ansible, git, approval, graph, noop",
                )
            ],
        ),
        (graph(a=node(requires=None)), [("tasks.a.requires", f"must be {FIELDS['node'][0].reader.takes}; got null")]),
        (graph(a=node(tsk=1)), [("tasks.a.tsk", 'unknown field "tsk" of a node; did you mean "task"?')]),
        (
            graph(a=node(requires=[{"on": "success"}])),
            [("tasks.a.requires[0]", 'needs the field "task"')],
        ),
        (
            graph(a=node(), b=node(requires=[{"task": "a", "on": "failed"}, 7])),
            [
                (
                    "tasks.b.requires[0].on",
                    'must be one of success, failure, always; got "failed"; did you mean "failure"?',
                ),
                ("tasks.b.requires[1]", "must be an object with the fields of a requires entry; got 7"),
            ],
        ),
        (
            graph(a=node(), b=node(requires=[{"task": "a", "where": {"os": "x"}}])),
            [("tasks.b.requires[0].where", '"a" has no matrix; leave where out')],
        ),
        (graph(a=node(join="some")), [("tasks.a.join", 'must be one of all, any; got "some"')]),
        (
            graph(a=node(on_impossible=3)),
            [("tasks.a.on_impossible", "must be one of hold, fail, skip; got 3")],
        ),
    ],
)
def test_a_bad_document_says_where_and_what(document: object, faults: list[tuple[str, str]]) -> None:
    assert faults_of(document) == faults


@pytest.mark.parametrize(
    ("label", "fault"),
    [
        ("", "label is empty; give it a name"),
        ("x" * 256, "label has 256 characters; at most 255"),
        (" x", 'label has outer blanks; write "x"'),
        ("x\u00a0", 'label has outer blanks; write "x"'),
        ("a\nb", "label holds the hidden character U+000A; remove it"),
        ("a\u202eb", "label holds the hidden character U+202E; remove it"),
        ("e\u0301", 'label is not in Unicode\'s composed form (NFC); write "\u00e9"'),
    ],
)
def test_a_bad_label_is_refused(label: str, fault: str) -> None:
    assert [message for _, message in faults_of({"tasks": {label: node()}})] == [fault]


@pytest.mark.parametrize(
    "label", ["x", "x" * 255, "a b", "../x", "a.b.*.#", "\u00e9t\u00e9", "\u6771\u4eac", "taskId:x"]
)
def test_a_label_may_be_any_visible_text(label: str) -> None:
    assert list(read({"tasks": {label: node()}}).tasks) == [label]


def test_one_label_may_be_required_on_both_ends() -> None:
    document = graph(a=node(), b=node(requires=["a", {"task": "a", "on": "failure"}]))
    assert read_task(document, "b").requires == (Edge("a"), Edge("a", On.FAILURE))


def test_faults_beyond_a_hundred_are_counted() -> None:
    document = graph(**{f"t{index}": node(x=1) for index in range(130)})
    faults = validate(document).faults
    assert len(faults) == 101
    assert faults[99].path == "tasks.t99.x"
    assert faults[-1] == Fault("", "and 30 more faults")


def test_one_fault_too_many_is_counted_in_the_singular() -> None:
    document = graph(**{f"t{index}": node(x=1) for index in range(101)})
    assert validate(document).faults[-1] == Fault("", "and 1 more fault")


def test_a_graph_holds_no_more_tasks_than_it_may() -> None:
    assert validate(chain(3), tasks_max=3).graph is not None
    assert validate(chain(4), tasks_max=3).faults == (Fault("tasks", "makes more than 3 tasks; split it"),)


def test_a_large_chain_is_read() -> None:
    assert len(read(chain(20_000)).tasks) == 20_000


def test_stars_are_read_both_ways() -> None:
    leaves = {f"t{index}": node(requires=["hub"]) for index in range(5_000)}
    assert len(read(graph(hub=node(), **leaves)).tasks) == 5_001
    sink = graph(**{label: node() for label in leaves}, sink=node(requires=list(leaves)))
    assert len(read_task(sink, "sink").requires) == 5_000


def test_many_unknown_labels_in_a_large_graph_are_all_counted() -> None:
    wide = graph(**{f"t{index}": node(requires=[f"u{index}"]) for index in range(3_000)})
    assert validate(wide).faults[-1] == Fault("", "and 2900 more faults")


def test_edges_are_counted_before_they_multiply() -> None:
    axis = {"n": list(range(256))}
    nodes = {f"m{index}": node(matrix=axis, requires=[f"m{other}" for other in range(index)]) for index in range(20)}
    assert ("tasks", f"makes more than {EDGES_MAX} edges; split it") in faults_of(graph(**nodes))


def test_plain_edges_are_taken_from_the_allowance_too() -> None:
    nodes = {label: node() for label in "abc"}
    left = Allowance(edges=3)
    labels = read_labels(nodes, {}, ("tasks",), Faults(), left, frozenset())
    resolver = Resolver(labels, Faults(), left)
    assert len(resolver.edges(["a", "b"], "c", {}, ())) == 2
    assert left.edges == 1
    resolver.edges(["a", "b"], "c", {}, ())
    assert left.edges == -1
    assert resolver.edges(["a"], "c", {}, ()) == ()


@each_row(
    ("deadline", "not_before", "fault"),
    [
        ("2030-01-01T00:00:00Z", None, "is in the past; move it ahead"),
        ("2031-01-01T00:00:00Z", None, None),
        ("0s", None, "is in the past; move it ahead"),
        ("1h", "2h", "must be later than not_before"),
        ("2h", "2h", "must be later than not_before"),
        ("2h", "1h", None),
        ("2031-01-01T00:00:00Z", "2031-01-01T00:00:00+00:00", "must be later than not_before"),
        ("2031-01-01T00:00:00Z", "365d", "must be later than not_before"),
        ("2031-01-01T00:00:00Z", "5d", None),
    ],
)
def test_a_deadline_that_nothing_can_keep_is_refused(deadline: str, not_before: str | None, fault: str | None) -> None:
    now = Millis(1_908_000_000_000)  # in June 2030
    document = task(deadline=deadline, **({"not_before": not_before} if not_before else {}))
    found = [(each.path, each.message) for each in validate(document, now=now).faults]
    assert found == ([("tasks.a.task.deadline", fault)] if fault else [])


def test_without_a_now_only_like_is_compared_with_like() -> None:
    assert faults_of(task(deadline="2001-01-01T00:00:00Z", not_before="300d")) == []
    assert faults_of(task(deadline="1h", not_before="2h")) == [
        ("tasks.a.task.deadline", "must be later than not_before")
    ]


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = sorted({field.name for fields in FIELDS.values() for field in fields} | {"a", "b", "$subs", "$matrix", "os"})
WORDS = ["a", "b", "taskId:a", "a[x]", "1h", "2030-01-01T00:00:00Z", "x", "success", "any", "os", "x|y", ""]
#: Valid field names in wrong places.
NEAR = st.recursive(
    st.sampled_from([*WORDS, 0, 1, -1, 2**60, True, None, 1.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=20,
)
NEAR_TASKS = st.fixed_dictionaries({}, optional={field.name: NEAR for field in FIELDS["task"]})
NEAR_NODES = st.fixed_dictionaries(
    {"task": NEAR | NEAR_TASKS},
    optional={
        **{field.name: NEAR for field in FIELDS["node"] if field.name != "task"},
        "matrix": NEAR | st.dictionaries(st.sampled_from(["os", "x", "exclude"]), st.lists(NEAR, max_size=3)),
        "requires": st.lists(st.sampled_from(WORDS) | st.fixed_dictionaries({"task": NEAR}, optional={"where": NEAR})),
    },
)
NEAR_GRAPHS = st.fixed_dictionaries({"tasks": st.dictionaries(st.sampled_from(["a", "b", "a[x]", " "]), NEAR_NODES)})


@given(PLAIN | NEAR | NEAR_GRAPHS)
@example({"tasks": {"a": {"matrix": {"os": ["x"]}, "task": {"$matrix": "os"}}}})
@example({"tasks": {"a": {"matrix": {"os": ["x", "y"]}, "task": {"payload": NOOP, "mutexes": [{}]}}}})
def test_no_plain_value_makes_it_raise(document: object) -> None:
    validation = validate(document)
    assert (validation.graph is None) == bool(validation.faults)
    assert all(fault.message for fault in validation.faults)


HUGE = 10**5000  # Python refuses to write this out


@each_row(
    "document",
    [
        [HUGE],
        {"tasks": HUGE},
        task(weight=HUGE),
        task(deadline=HUGE),
        task(dimensions={"cores": HUGE}),
        task(payload={"python": "m:f", "args": [HUGE]}),
        graph(a=node(matrix={"n": [HUGE]})),
        graph(a=node(matrix={"n": [1]}), b=node(requires=[{"task": "a", "where": {"n": HUGE}}])),
        graph(a=node({"$subs": HUGE})),
        {HUGE: 1},
    ],
)
def test_a_number_too_long_to_write_is_a_fault_like_any_other(document: object) -> None:
    assert faults_of(document)
    assert validate(document, existing=Existing({"a": "0" * 64})).graph is None


@given(NEAR_GRAPHS)
def test_no_plain_value_makes_an_extension_raise(document: object) -> None:
    validation = validate(document, existing=Existing({"a": "0" * 64}))
    assert (validation.graph is None) == bool(validation.faults)


@each_row("level", FIELDS)
def test_every_field_has_a_reader_a_sentence_and_a_name_of_its_own(level: str) -> None:
    fields = FIELDS[level]
    assert len({field.name for field in fields}) == len(fields)
    for field in fields:
        assert field.reader.takes
        assert field.doc.endswith(".")


@each_row(
    "field",
    [field for fields in FIELDS.values() for field in fields if isinstance(field.default, str | int | float)],
)
def test_what_holds_when_a_field_is_left_out_is_a_value_of_it(field: Field) -> None:
    assert field.default is not REQUIRED
    faults = Faults()
    field.reader.read(field.default, (), faults)
    assert faults.listed() == ()


@pytest.mark.parametrize("level", ["node", "task"])
def test_the_defaults_of_the_tables_are_those_of_a_task(level: str) -> None:
    left_out = read_task({"tasks": {"a": {"task": {"payload": {"script": "x"}}}}})
    given_out = {field.name: field.default for field in FIELDS[level] if isinstance(field.default, str | int)}
    nodes = {"a": {**given_out, "task": {"payload": {"script": "x"}}}}
    tasks = {"a": {"task": {**given_out, "payload": {"script": "x"}}}}
    assert read_task({"tasks": nodes if level == "node" else tasks}) == left_out


MADE = (
    Edge("a"), Existing(), Fault("", "x"), Field("x", Reader("x", lambda *_: None), 0, ""), GraphDefinition(),
    Mutex("k"), Reruns(), Slice((), {}, Kind.NOOP), Task("a", ()), Validation(GraphDefinition()), When(1, True),
)  # fmt: skip


@each_row("made", MADE)
def test_what_was_read_is_never_changed_again(made: object) -> None:
    changed = next(iter(type(made).__annotations__))
    with pytest.raises(AttributeError, match=r"cannot assign|immutable"):
        setattr(made, changed, None)


def test_a_validation_without_faults_has_its_graph() -> None:
    assert validate({"tasks": {}}) == Validation(GraphDefinition())
