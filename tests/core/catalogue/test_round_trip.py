"""What is exported, in YAML or JSON, applies unchanged, whatever the documents say."""

import json
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from taskyard.core.catalogue.parse import read_documents
from taskyard.core.catalogue.plan import Action, Facts, Rights, Stored, plan
from taskyard.wire.documents import read_documents as read_file
from taskyard.wire.yaml_writer import write
from tests.effort import tries
from tests.wire.test_yaml_writer import SCALAR, TEXT

NAMES = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"], exclude_characters="/"), min_size=1, max_size=12)
WORDS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
VALUES = st.recursive(
    SCALAR, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)), max_leaves=8
)
VARIABLES = st.dictionaries(WORDS, VALUES, max_size=3)
SPANS = st.sampled_from(["0s", "90s", "1m30s", "1h", "60m"])


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of these fields, in any order."""
    return st.fixed_dictionaries({}, optional=fields).flatmap(
        lambda made: st.permutations(list(made.items())).map(dict)
    )


def kind(word: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A document of a kind, with some of these fields."""
    shared = {} if word in ("pool", "limit") else {"pool": st.sampled_from(["default", "lab"]), "description": TEXT}
    return st.tuples(NAMES, some(**shared, **fields)).map(lambda pair: {"kind": word, "name": pair[0], **pair[1]})


HOSTS = st.one_of(
    st.lists(NAMES, max_size=3, unique=True), st.dictionaries(NAMES, st.one_of(st.none(), VARIABLES), max_size=3)
)
SURVEY = st.lists(
    st.one_of(
        st.tuples(WORDS, st.one_of(TEXT, st.none())).map(
            lambda pair: {"name": pair[0], "type": "text"} | ({"default": pair[1]} if pair[1] else {})
        ),
        st.tuples(WORDS, st.floats(-10, 10)).map(lambda pair: {"name": pair[0], "type": "number", "min": pair[1]}),
        st.tuples(WORDS, st.lists(NAMES, min_size=1, max_size=3, unique=True)).map(
            lambda pair: {"name": pair[0], "type": "choice", "choices": pair[1], "default": pair[1][0]}
        ),
    ),
    max_size=3,
    unique_by=lambda one: one["name"],
)
PAYLOADS = st.one_of(
    st.lists(TEXT, min_size=1, max_size=4).map(lambda words: {"command": words}),
    st.tuples(TEXT, st.dictionaries(WORDS, TEXT, max_size=2)).map(
        lambda pair: {"script": pair[0] or "true", "env": pair[1]}
    ),
)
TASK: dict[str, st.SearchStrategy[Any]] = {
    "weight": st.integers(0, 5),
    "dimensions": st.dictionaries(st.sampled_from(["os", "cpu"]), NAMES, max_size=2),
    "limits": st.dictionaries(NAMES, st.integers(1, 3), max_size=2),
    "cpus": st.sampled_from([0.5, 1, 1.0, 2]),
    "variables": VARIABLES,
    "survey": SURVEY,
}
DOCUMENTS = st.lists(
    st.one_of(
        kind("project", update_on_launch=st.booleans(), update_cache_timeout=SPANS).map(
            lambda one: {**one, "git": "/x"}
        ),
        kind(
            "inventory", hosts=HOSTS, vars=VARIABLES, groups=st.dictionaries(NAMES, some(hosts=HOSTS, vars=VARIABLES))
        ),
        kind("job_template", allow_simultaneous=st.booleans(), **TASK).flatmap(
            lambda one: PAYLOADS.map(lambda payload: {**one, "payload": payload})
        ),
        kind("system_job_template", **TASK).flatmap(
            lambda one: PAYLOADS.map(lambda payload: {"payload": payload, **one})
        ),
        kind("workflow_template", variables=VARIABLES).flatmap(
            lambda one: st.dictionaries(NAMES, PAYLOADS, min_size=1, max_size=3).map(
                lambda nodes: {**one, "nodes": {label: {"task": {"payload": it}} for label, it in nodes.items()}}
            )
        ),
        kind("pool", capacity=st.integers(0, 9), reuse_window=SPANS, reuse_shared=st.booleans()),
        kind("limit").flatmap(lambda one: st.integers(0, 9).map(lambda total: {**one, "total": total})),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=tries(100), deadline=None)
@given(DOCUMENTS)
def test_what_is_exported_applies_unchanged(documents: list[dict[str, Any]]) -> None:
    reading = read_documents(documents)
    assume(not reading.faults)
    assume(not plan(reading.entries, Facts({}), Rights()).faults)  # such as two templates of one name
    stored = {
        (str(one.document.kind), one.document.name): Stored(one.document.pool, 1, one.document.body)
        for one in reading.entries
    }
    exported = [json.loads(one.document.body) for one in reading.entries]
    for text, name in ((write(exported), "all.yaml"), (json.dumps(exported), "all.json")):
        again = read_documents([one for _, one in read_file(text.encode(), name)])
        assert again.faults == ()
        planned = plan(again.entries, Facts(stored), Rights())
        assert planned.faults == ()
        assert {one.action for one in planned.changes} == {Action.UNCHANGED}


def test_most_of_the_random_documents_are_valid() -> None:
    """The property would be empty if the reader refused what it is given."""
    counts = {True: 0, False: 0}

    @settings(max_examples=100, deadline=None, database=None)
    @given(DOCUMENTS)
    def look(documents: list[dict[str, Any]]) -> None:
        counts[not read_documents(documents).faults] += 1

    look()
    assert counts[True] > counts[False], counts
