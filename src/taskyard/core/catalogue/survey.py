"""Surveys: the variables that a launch asks for, and whether what it is given answers them."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

from taskyard.core.catalogue.model import ANSWER_MAX, AnswerType, SurveyField
from taskyard.core.graph.errors import Fault, Faults, Path, quoted, shown
from taskyard.core.graph.schema import survey

#: What each type takes, as people call it.
_TAKES: Mapping[AnswerType, str] = {
    AnswerType.TEXT: "a string",
    AnswerType.INTEGER: "an integer",
    AnswerType.NUMBER: "a number",
    AnswerType.BOOLEAN: "true or false",
    AnswerType.CHOICE: "one of the choices",
    AnswerType.LIST: "a list of strings",
}


@dataclass(frozen=True, slots=True)
class Answers:
    """The variables of a launch, or the faults of what was given; the variables are right only without faults."""

    values: Mapping[str, object]
    faults: tuple[Fault, ...] = ()


def answers(
    fields: Iterable[SurveyField],
    variables: Mapping[str, object],
    given: Mapping[str, object],
    *,
    open_ended: bool = False,
) -> Answers:
    """Merge the defaults of a survey, the variables of its template and what is given, the later over the earlier.

    Only what the survey or the variables name can be given, unless it is `open_ended`: a caller who may launch a
    template cannot set what its author did not offer.
    """
    faults = Faults()
    if not survey({"variables": given}, faults).readable:
        return Answers({}, faults.listed())
    values = answer(fields, variables, given, ("variables",), faults, open_ended=open_ended)
    return Answers(values, faults.listed())


def answer(
    fields: Iterable[SurveyField],
    variables: Mapping[str, object],
    given: Mapping[str, object],
    at: Path,
    faults: Faults,
    *,
    open_ended: bool = False,
) -> dict[str, object]:
    """Merge as `answers` does; what is given is plain JSON."""
    known = {one.name: one for one in fields}
    values = {name: one.default for name, one in known.items() if one.default is not None}
    values |= variables
    for name, item in given.items():
        if name in known:
            check_answer(known[name], item, (*at, name), faults)
        elif name not in variables and not open_ended:
            _refuse_unknown(name, known.keys() | variables.keys(), (*at, name), faults)
        values[name] = item
    for name, one in known.items():
        if one.required and name not in values:
            faults.add(at, f"needs the variable {quoted(name)}, {_TAKES[one.type]}{_described(one)}")
    return values


def read_texts(fields: Iterable[SurveyField], texts: Mapping[str, str]) -> dict[str, object]:
    """Read variables as people type them: as the type that the survey gives them, others as JSON if they are that.

    A text that is not of its type stays a text, which the survey then refuses.
    """
    known = {one.name: one.type for one in fields}
    return {name: _read_text(known.get(name), text) for name, text in texts.items()}


def _read_text(wanted: AnswerType | None, text: str) -> object:
    if wanted in (AnswerType.TEXT, AnswerType.CHOICE):
        return text
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        found = text
    if wanted is AnswerType.LIST and not isinstance(found, list):
        return [part.strip() for part in text.split(",")]
    return found


def _refuse_constant(word: str) -> object:
    raise ValueError(f"{word} is no JSON")


def check_answer(field: SurveyField, item: object, at: Path, faults: Faults) -> None:
    """Note what is wrong with the answer of a field."""
    if not _is_of_type(field.type, item):
        _refuse_type(field, item, at, faults)
    elif field.type is AnswerType.CHOICE and item not in field.choices:
        meant = faults.meant(str(item), field.choices)
        faults.add(at, f"must be one of {', '.join(map(quoted, field.choices))}; got {shown(item)}{meant}")
    elif field.type is AnswerType.LIST and field.choices:
        _check_chosen(field, item, at, faults)
    _check_bounds(field, item, at, faults)


def _is_of_type(wanted: AnswerType, item: object) -> bool:
    match wanted:
        case AnswerType.TEXT | AnswerType.CHOICE:
            return isinstance(item, str)
        case AnswerType.INTEGER:
            return isinstance(item, int) and not isinstance(item, bool)
        case AnswerType.NUMBER:
            return isinstance(item, int | float) and not isinstance(item, bool) and isfinite(item)
        case AnswerType.BOOLEAN:
            return isinstance(item, bool)
        case AnswerType.LIST:
            return isinstance(item, list) and all(isinstance(one, str) for one in item)


def _refuse_type(field: SurveyField, item: object, at: Path, faults: Faults) -> None:
    is_number = isinstance(item, int | float) and not isinstance(item, bool)
    if is_number and field.type in (AnswerType.TEXT, AnswerType.CHOICE):
        faults.add(at, f'must be a string; write "{shown(item)}"')
    else:
        faults.wrong(at, _TAKES[field.type], item)


def _check_chosen(field: SurveyField, item: object, at: Path, faults: Faults) -> None:
    for place, one in enumerate(item) if isinstance(item, list) else ():
        if one not in field.choices:
            meant = faults.meant(str(one), field.choices)
            faults.add((*at, place), f"must be one of {', '.join(map(quoted, field.choices))}; got {shown(one)}{meant}")


def _check_bounds(field: SurveyField, item: object, at: Path, faults: Faults) -> None:
    measured: float | None = None
    what = ""
    if field.type in (AnswerType.INTEGER, AnswerType.NUMBER) and isinstance(item, int | float):
        measured = item
    elif field.type is AnswerType.TEXT and isinstance(item, str):
        measured, what = len(item), " characters"
    elif field.type is AnswerType.LIST and isinstance(item, list):
        measured, what = len(item), " entries"
    if measured is None or isinstance(item, bool):
        return
    most = field.max if field.max is not None else ANSWER_MAX if what else None
    if field.min is not None and measured < field.min:
        faults.add(at, f"must be at least {field.min:g}{what}; got {measured:g}")
    if most is not None and measured > most:
        faults.add(at, f"must be at most {most:g}{what}; got {measured:g}")


def _refuse_unknown(name: str, known: Collection[str], at: Path, faults: Faults) -> None:
    meant = faults.meant(name, known)
    if not meant:
        meant = f"; it takes {', '.join(sorted(known))}" if known else "; it takes none"
    faults.add(at, f"is neither in the survey nor in the variables of the template{meant}")


def _described(field: SurveyField) -> str:
    return f" ({field.description})" if field.description else ""
