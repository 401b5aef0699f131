"""Whatever a document holds, reading it ends with documents or with faults, and never with an error."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from taskyard.core.catalogue.model import DocumentKind
from taskyard.core.catalogue.parse import read_documents, stored_document
from taskyard.core.catalogue.plan import Facts, Rights, plan
from taskyard.core.catalogue.schema import LEVELS
from tests.core.catalogue.documents import ALL
from tests.effort import tries
from tests.wire.test_yaml_writer import SCALAR, TEXT

ODD = st.one_of(
    SCALAR,
    st.sampled_from([float("nan"), float("inf"), 2**70, "\0", "\ud800", b"bytes", (1, 2), object(), "x" * 300]),
)
INNER = st.sampled_from(
    [
        "name",
        "type",
        "task",
        "template",
        "payload",
        "command",
        "playbook",
        "plugin",
        "project",
        "path",
        "hosts",
        "vars",
        "children",
        "survey",
        "requires",
        "matrix",
        "graph",
        "tasks",
        "secrets",
        "dimensions",
        "pool",
        "key",
        "party",
        "inputs",
        "from",
        "$matrix",
        "$subs",
        "approval",
        "count",
    ]
)
VALUES = st.recursive(
    ODD,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(INNER, TEXT, st.integers()), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = sorted({field.name for level in LEVELS.values() for field in level.fields} - {"kind"})
ANYTHING = st.tuples(
    st.one_of(st.sampled_from(list(map(str, DocumentKind))), ODD),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=8),
).map(lambda pair: {"kind": pair[0], **pair[1]})


def replaced(document: Any, path: list[int], value: object) -> Any:
    """Return a document with one value in it replaced; the path chooses among what is there."""
    if not path or not isinstance(document, dict | list) or not document:
        return value
    keys = list(document) if isinstance(document, dict) else list(range(len(document)))
    chosen = keys[path[0] % len(keys)]
    inner = replaced(document[chosen], path[1:], value)
    if isinstance(document, dict):
        return {**document, chosen: inner}
    return [inner if place == chosen else one for place, one in enumerate(document)]


NEARLY = st.builds(replaced, st.sampled_from(ALL), st.lists(st.integers(0, 9), min_size=1, max_size=5), VALUES)


@settings(max_examples=tries(300), deadline=None)
@given(st.lists(st.one_of(ANYTHING, NEARLY, ODD), max_size=4))
def test_reading_never_raises_and_what_it_accepts_is_sound(documents: list[Any]) -> None:
    reading = read_documents(documents)
    assert reading.entries or reading.faults
    plan(reading.entries, Facts({}), Rights())
    for entry in reading.entries:
        if not reading.faults:
            assert stored_document(entry.document.body) == entry.document
