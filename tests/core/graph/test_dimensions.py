"""What a bot must have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskyard.core.matching import Dimensions
from tests.core.graph.documents import faults_of, read_task, task
from tests.each_row import each_row


@pytest.mark.parametrize(
    ("given_", "read"),
    [
        ({}, (("pool", ("default",)),)),
        ({"pool": "lab", "os": "Linux"}, (("os", ("Linux",)), ("pool", ("lab",)))),
        ({"os": ["Linux", "Debian"]}, (("os", ("Debian", "Linux")), ("pool", ("default",)))),
        ({"gpu": "h100|a100"}, (("gpu", ("a100|h100",)), ("pool", ("default",)))),
        ({"pool": ["lab"]}, (("pool", ("lab",)),)),
        ({"id": "rack4", "zone": "b"}, (("id", ("rack4",)), ("pool", ("default",)), ("zone", ("b",)))),
        ({"a": ["x|y", "v|w"], "b": "1|2"}, (("a", ("v|w", "x|y")), ("b", ("1|2",)), ("pool", ("default",)))),
        (
            {"gb": [">=16.0", "<064"], "n": "!=1|x"},
            (("gb", ("<64", ">=16")), ("n", ("!=1|x",)), ("pool", ("default",))),
        ),
    ],
)
def test_dimensions_have_one_canonical_order(given_: object, read: Dimensions) -> None:
    assert read_task(task(dimensions=given_)).slices[0].dimensions == read


@pytest.mark.parametrize("work", [{"approval": "Ship it?"}, {"noop": True}, {"graph": {"tasks": {}}}])
def test_what_the_server_runs_is_put_into_no_pool(work: dict[str, object]) -> None:
    assert read_task(task(payload=work)).slices[0].dimensions == ()
    assert read_task(task(payload=work, dimensions={"pool": "ops"})).slices[0].dimensions == (("pool", ("ops",)),)


def test_every_slice_that_names_no_pool_is_in_the_default_one() -> None:
    work = {"command": ["x"]}
    document = task(payload=work, slices=[{"dimensions": {"pool": "lab"}}, {"dimensions": {"os": "b"}}, {}])
    pools = [dict(one.dimensions)["pool"] for one in read_task(document).slices]
    assert pools == [("lab",), ("default",), ("default",)]


@given(st.permutations(["os", "gpu", "pool"]), st.permutations(["x", "y|z", "w"]))
def test_equal_demands_are_read_alike(keys: list[str], values: list[str]) -> None:
    wanted = {"os": values, "gpu": "a|b", "pool": "lab"}
    shuffled = read_task(task(dimensions={key: wanted[key] for key in keys})).slices[0].dimensions
    assert shuffled == (("gpu", ("a|b",)), ("os", ("w", "x", "y|z")), ("pool", ("lab",)))


@each_row(
    ("dimensions", "path", "message"),
    [
        ([], "", "must be an object of dimension keys, each with a string or a list of strings; got a list"),
        ({f"k{index}": "v" for index in range(33)}, "", "must hold at most 32 keys; got 33"),
        ({"a b": "v"}, '["a b"]', "is no dimension key; use 1 to 64 of the characters A-Z a-z 0-9 _ . -"),
        ({"k" * 65: "v"}, "." + "k" * 65, "is no dimension key; use 1 to 64 of the characters A-Z a-z 0-9 _ . -"),
        ({"cores": 8}, ".cores", 'must be a string; write "8"'),
        ({"cores": True}, ".cores", "must be a string; got true"),
        ({"cores": {"$subs": "taskId:a"}}, ".cores", "must be a string; got an object"),
        ({"os": "v" * 257}, ".os", "has 257 characters; at most 256"),
        ({"os": " v"}, ".os", 'has outer blanks; write "v"'),
        ({"os": ""}, ".os", "is empty; give it a name"),
        ({"os": []}, ".os", "must hold 1 to 16 values; got 0"),
        ({"os": [str(index) for index in range(17)]}, ".os", "must hold 1 to 16 values; got 17"),
        ({"os": ["v", "w", "v"]}, ".os[2]", 'repeats the value "v"; name it once'),
        ({"os": ["v", 3]}, ".os[1]", 'must be a string; write "3"'),
        ({"pool": ["a", "b"]}, ".pool", "must hold one value"),
        ({"pool": "a|b"}, ".pool", "must not hold |: pool has no alternatives; use one slice for each"),
        ({"id": "a|b"}, ".id", "must not hold |: id has no alternatives; use one slice for each"),
        ({"os": "a|a"}, ".os", 'repeats an alternative in "a|a"; name it once'),
        ({"os": "a||b"}, ".os", 'has an alternative that is empty or has outer blanks in "a||b"'),
        ({"os": "a| b"}, ".os", 'has an alternative that is empty or has outer blanks in "a| b"'),
        ({"gb": ">=16GiB"}, ".gb", 'must be one of >= <= != > < and a decimal number, such as >=16; got ">=16GiB"'),
        ({"gb": ">= 16"}, ".gb", 'must be one of >= <= != > < and a decimal number, such as >=16; got ">= 16"'),
        ({"gb": "<1e3"}, ".gb", 'must be one of >= <= != > < and a decimal number, such as >=16; got "<1e3"'),
        ({"gb": ">"}, ".gb", 'must be one of >= <= != > < and a decimal number, such as >=16; got ">"'),
        ({"os": "!=Linux"}, ".os", 'must be one of >= <= != > < and a decimal number, such as >=16; got "!=Linux"'),
        ({"gb": "8|>=x"}, ".gb", 'must be one of >= <= != > < and a decimal number, such as >=16; got ">=x"'),
        ({"gb": "=>16"}, ".gb", 'begins with =>, which is no operator; write >=16; got "=>16"'),
        ({"gb": ["==16"]}, ".gb[0]", 'begins with ==, which is no operator; write 16; got "==16"'),
        ({"id": ">=4"}, ".id", "must not begin with >=: id is a name, which is not compared"),
        ({"pool": "!=4"}, ".pool", "must not begin with !=: pool is a name, which is not compared"),
        (
            {"os": "a|b|c", "gpu": ["1|2|3"]},
            "",
            "its alternatives make 9 combinations; at most 8: use more slices",
        ),
    ],
)
def test_bad_dimensions_are_refused(dimensions: object, path: str, message: str) -> None:
    assert faults_of(task(dimensions=dimensions)) == [(f"tasks.a.task.dimensions{path}", message)]


def test_eight_combinations_are_enough() -> None:
    assert faults_of(task(dimensions={"os": "a|b|c|d", "gpu": "1|2"})) == []
