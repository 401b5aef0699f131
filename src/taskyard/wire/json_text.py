"""Reads JSON, strictly: what other readers would guess, round or drop is a fault here.

The standard library parses; around it stand the checks it does not make. Nothing here recurses.
"""

import json
import re

from taskyard.wire.faults import Findings
from taskyard.wire.scalars import DEPTH_MAX, place_of, read_float, read_integer, shortened


def read(text: str) -> object:
    """Read the one value in `text`."""
    findings = Findings()
    _check_escapes(text, findings)
    value = _parse(text, findings)
    if _is_deep(value):
        _check_depth(text, findings)
    findings.refuse(value)
    return value


def _is_deep(value: object) -> bool:
    """Tell whether lists and objects stand too deep inside each other, level by level."""
    level = [value]
    for _ in range(DEPTH_MAX):
        below: list[object] = []
        for one in level:
            if type(one) is dict:
                below += one.values()
            elif type(one) is list:
                below += one
        if not below:
            return False
        level = [one for one in below if type(one) is dict or type(one) is list]
    return bool(level)


#: A whole string, or brackets in a row; possessive, so that a string of megabytes takes no stack.
_STRING_OR_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[{]+|[\]}]+')


def _check_depth(text: str, findings: Findings) -> None:
    depth = 0
    for match in _STRING_OR_BRACKETS.finditer(text):
        first = text[match.start()]
        if first in "[{":
            depth += match.end() - match.start()
        elif first in "]}":
            depth -= match.end() - match.start()
        if depth > DEPTH_MAX:
            raise findings.stop(f"nested more than {DEPTH_MAX} deep", *place_of(text, match.start()))


#: One escape. Two that make a pair of surrogates together are one and are good, as is any other.
_ESCAPE = re.compile(
    r"\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(?P<lone>\\u[dD][89a-fA-F]\w\w)|(?P<nul>\\u0000)|\\.", re.DOTALL
)
_BAD_ESCAPES = {"lone": "half of a surrogate pair", "nul": "a NUL character"}


def _check_escapes(text: str, findings: Findings) -> None:
    for match in _ESCAPE.finditer(text) if "\\" in text else ():
        if match.lastgroup:
            findings.add(f"{match[0]} is {_BAD_ESCAPES[match.lastgroup]}", *place_of(text, match.start()))


def _parse(text: str, findings: Findings) -> object:
    def refuse_constant(word: str) -> None:
        findings.add(f"{word} is not a number in JSON")

    def mapping(pairs: list[tuple[str, object]]) -> dict[str, object]:
        value = dict(pairs)
        if len(value) < len(pairs):
            _add_duplicates([key for key, _ in pairs], findings)
        return value

    try:
        return json.loads(
            text,
            object_pairs_hook=mapping,
            parse_constant=refuse_constant,
            parse_int=lambda digits: read_integer(digits, findings),
            parse_float=lambda digits: read_float(digits, findings),
        )
    except RecursionError:
        _check_depth(text, findings)
        raise
    except json.JSONDecodeError as error:
        raise findings.stop(f"not JSON: {error.msg}", error.lineno, error.colno) from None


def _add_duplicates(keys: list[str], findings: Findings) -> None:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            findings.add(f"the key {shortened(key)!r} is there twice")
        seen.add(key)
