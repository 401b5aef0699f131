"""Surveys: what is given to a launch becomes its variables, or every fault of it is listed."""

from collections.abc import Mapping
from typing import Any

from taskyard.core.catalogue.model import AnswerType, SurveyField
from taskyard.core.catalogue.survey import answers, read_texts
from tests.each_row import each_row

TEXT = SurveyField("a", AnswerType.TEXT, min=2, max=3)
INTEGER = SurveyField("a", AnswerType.INTEGER, min=1, max=5)
NUMBER = SurveyField("a", AnswerType.NUMBER, min=0.5)
BOOLEAN = SurveyField("a", AnswerType.BOOLEAN)
CHOICE = SurveyField("a", AnswerType.CHOICE, choices=("blue", "green"))
LIST = SurveyField("a", AnswerType.LIST, min=1, max=2, choices=("blue", "green"))
FREE_LIST = SurveyField("a", AnswerType.LIST)


@each_row(
    ("field", "given", "message"),
    [
        (TEXT, "ab", None),
        (TEXT, "a", "must be at least 2 characters; got 1"),
        (TEXT, "abcd", "must be at most 3 characters; got 4"),
        (TEXT, 12, 'must be a string; write "12"'),
        (TEXT, None, "must be a string; got null"),
        (SurveyField("a", AnswerType.TEXT), "x" * 32_769, "must be at most 32768 characters; got 32769"),
        (INTEGER, 5, None),
        (INTEGER, 6, "must be at most 5; got 6"),
        (INTEGER, 0, "must be at least 1; got 0"),
        (INTEGER, True, "must be an integer; got true"),
        (INTEGER, "3", 'must be an integer; got "3"'),
        (INTEGER, 1.0, "must be an integer; got 1.0"),
        (NUMBER, 0.5, None),
        (NUMBER, 1, None),
        (NUMBER, 0.25, "must be at least 0.5; got 0.25"),
        (NUMBER, float("inf"), "is inf, which JSON cannot carry; write it as a string"),
        (BOOLEAN, False, None),
        (BOOLEAN, 0, "must be true or false; got 0"),
        (CHOICE, "blue", None),
        (CHOICE, "bleu", 'must be one of "blue", "green"; got "bleu"; did you mean "blue"?'),
        (CHOICE, 3, 'must be a string; write "3"'),
        (LIST, ["blue"], None),
        (LIST, [], "must be at least 1 entries; got 0"),
        (LIST, ["blue", "red"], 'must be one of "blue", "green"; got "red"'),
        (LIST, "blue", 'must be a list of strings; got "blue"'),
        (FREE_LIST, ["x", "y"], None),
        (FREE_LIST, ["x", 3], "must be a list of strings; got a list"),
    ],
)
def test_an_answer_has_the_type_and_the_bounds_of_its_field(
    field: SurveyField, given: object, message: str | None
) -> None:
    found = answers([field], {}, {"a": given})
    assert [one.message for one in found.faults][:1] == ([] if message is None else [message])
    assert found.values.get("a") == given or found.faults


def merged(survey: list[SurveyField], variables: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, object]:
    found = answers(survey, variables, given)
    assert not found.faults
    return found.values


def test_what_is_given_wins_over_the_variables_and_these_over_the_defaults() -> None:
    survey = [SurveyField(name, AnswerType.TEXT, default="default") for name in "abc"]
    variables = {"b": "variable", "c": "variable"}
    assert merged(survey, variables, {"c": "given"}) == {"a": "default", "b": "variable", "c": "given"}


def test_what_is_required_has_to_be_given_unless_it_has_a_value() -> None:
    field = SurveyField("a", AnswerType.TEXT, required=True, description="the version")
    found = answers([field], {}, {})
    assert [(one.path, one.message) for one in found.faults] == [
        ("variables", 'needs the variable "a", a string (the version)')
    ]
    assert merged([field], {"a": "x"}, {}) == {"a": "x"}


def test_only_what_the_author_offers_can_be_given() -> None:
    found = answers([TEXT], {"b": 1}, {"ansible_become_password": "x", "bb": 2})
    assert [(one.path, one.message) for one in found.faults] == [
        (
            "variables.ansible_become_password",
            "is neither in the survey nor in the variables of the template; it takes a, b",
        ),
        ("variables.bb", 'is neither in the survey nor in the variables of the template; did you mean "b"?'),
    ]
    assert answers([TEXT], {}, {"other": 1}, open_ended=True).values == {"other": 1}


def test_every_fault_is_listed_and_hostile_text_is_refused() -> None:
    found = answers([TEXT, SurveyField("b", AnswerType.INTEGER)], {}, {"a": "\x00b", "b": "x", "c\ud800": 1})
    assert {one.path for one in found.faults} >= {"variables.a", "variables.b"}
    assert any("lone surrogate" in one.message for one in found.faults)


@each_row(
    ("field", "text", "value"),
    [
        (TEXT, "1.2", "1.2"),
        (TEXT, "true", "true"),
        (CHOICE, "7", "7"),
        (INTEGER, "3", 3),
        (INTEGER, "three", "three"),
        (NUMBER, "0.5", 0.5),
        (NUMBER, "NaN", "NaN"),
        (BOOLEAN, "true", True),
        (BOOLEAN, "yes", "yes"),
        (FREE_LIST, "blue, green", ["blue", "green"]),
        (FREE_LIST, '["a,b"]', ["a,b"]),
        (SurveyField("b", AnswerType.TEXT), '{"x": 1}', {"x": 1}),
        (SurveyField("b", AnswerType.TEXT), "9" * 5_000, "9" * 5_000),
        (SurveyField("b", AnswerType.TEXT), "[" * 100_000, "[" * 100_000),
    ],
)
def test_what_people_type_is_read_as_the_type_that_the_survey_gives_it(
    field: SurveyField, text: str, value: object
) -> None:
    assert read_texts([field], {"a": text}) == {"a": value}
