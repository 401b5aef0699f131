"""Reads the text of a graph document, YAML or JSON, into a plain value.

Both forms give the same values: null, true, false, 64-bit integers, finite floats, text, lists, and mappings with
text as keys. The text is hostile: size, depth and aliases are bounded before anything is built, and nothing in it is
ever called or looked up. Whether the value is a good graph is not judged here.
"""

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

# What is wrong with a document, and where; every fault at once, never only the first.
#
# A fault is plain text and a place. Nothing here knows a rule of graphs or of YAML.


#: A person fixes a page of faults at a time; a hostile document must not cause an answer longer than itself.
FAULTS_MAX = 100


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong: in words, at a path in the document, on a line of its text, as far as these are known."""

    message: str
    path: str = ""
    line: int | None = None
    column: int | None = None


class RefusedDocument(ValueError):
    """A refused document; `faults` has every fault once."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(fault.message for fault in self.faults))


class UnreadableDocument(RefusedDocument):
    """A text that is not a valid document; `value` is what could be read, if reading came to the end."""

    def __init__(self, faults: Iterable[Fault], value: object = None) -> None:
        super().__init__(faults)
        self.value = value


class Findings:
    """Collects faults while reading goes on, and refuses the document at the end, or when there are too many."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, message: str, line: int | None = None, column: int | None = None) -> None:
        """Note a fault that reading can go on after."""
        self._faults.append(Fault(message, line=line, column=column))
        if len(self._faults) >= FAULTS_MAX:
            raise UnreadableDocument([*self._faults, Fault(f"there are more than {FAULTS_MAX} faults")])

    def stop(self, message: str, line: int | None = None, column: int | None = None) -> UnreadableDocument:
        """Return the error for a fault that ends the reading, with those found before it."""
        return UnreadableDocument([*self._faults, Fault(message, line=line, column=column)])

    def refuse(self, value: object = None) -> None:
        """Raise what was found, if anything was, with what was read."""
        if self._faults:
            raise UnreadableDocument(self._faults, value)


# What the two forms of a document share: the limits, and how numbers and places are read.


#: A graph of 100 000 small tasks fits; a larger text could exhaust the memory of a client.
DOCUMENT_BYTES_MAX: Final = 10 * 1024 * 1024
#: People nest graphs in graphs a few times, at five levels each; Python's own stack ends near 1 000.
DEPTH_MAX: Final = 100
#: What a signed 64-bit column and every other JSON reader can hold.
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
#: As long as the longest of these with its sign: a longer one is refused unread, for reading it is slow.
INTEGER_DIGITS_MAX: Final = 20

#: Keys and indexes from the root of a document to a value in it.
Path = tuple[str | int, ...]


def place_of(text: str, offset: int) -> tuple[int, int]:
    """Return the line and column, from 1, of a character."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def read_integer(digits: str, findings: Findings, line: int | None = None, column: int | None = None) -> int:
    """Read an integer, if 64 bits hold it."""
    value = int(digits) if len(digits) <= INTEGER_DIGITS_MAX else INTEGER_MAX + 1
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        findings.add(f"the integer {shortened(digits)} does not fit in 64 bits", line, column)
    return value


def read_float(digits: str, findings: Findings, line: int | None = None, column: int | None = None) -> float:
    """Read a float, if it is finite."""
    value = float(digits)
    if math.isinf(value):
        findings.add(f"the number {shortened(digits)} is too large", line, column)
    return value


def shortened(text: str, length_max: int = 40) -> str:
    """Cut what a hostile document could make long, for a message."""
    return text if len(text) <= length_max else f"{text[:length_max]}..."


__all__ = [
    "DOCUMENT_BYTES_MAX",
    "Fault",
    "Path",
    "UnreadableDocument",
    "find_document_lines",
    "find_lines",
    "read_document",
    "read_documents",
]

#: Faults are placed in texts up to this size, in about a second; in larger texts faults have only paths.
PLACED_BYTES_MAX: Final = 1024 * 1024


def read_document(text: bytes, name: str = "") -> object:
    """Read YAML or JSON, by the ending of the name or else by a leading `{`; raise `UnreadableDocument`."""
    decoded = _decode(text)
    # A parser costs time to load, so only the one that is needed is.
    if _is_json(decoded, name):
        return read(decoded)
    from taskyard.wire import yaml_reader  # noqa: PLC0415

    return yaml_reader.read(decoded)


def read_documents(text: bytes, name: str = "") -> list[tuple[Path, object]]:
    """Read a file with several documents, each with its place: YAML with `---` between them, or one list of them.

    JSON has one document, or a list. A place is the number of a document, and in a list the number of its entry.
    """
    decoded = _decode(text)
    if _is_json(decoded, name):
        found = [read(decoded)]
    else:
        from taskyard.wire import yaml_reader  # noqa: PLC0415

        found = yaml_reader.read_all(decoded)
    if len(found) == 1 and isinstance(found[0], list):
        return [((0, place), one) for place, one in enumerate(found[0])]
    return [((place,), one) for place, one in enumerate(found) if one is not None]


def find_document_lines(text: bytes, paths: Collection[Path]) -> Mapping[Path, int]:
    """Return on which line each path begins, as `find_lines` does; a path begins with the place of its document."""
    if len(text) > PLACED_BYTES_MAX:
        return {}
    from taskyard.wire import yaml_reader  # noqa: PLC0415

    return yaml_reader.find_lines(text.decode("utf-8-sig"), paths, several=True)


def find_lines(text: bytes, paths: Collection[str]) -> Mapping[str, int]:
    """Return on which line of a readable document each path begins, or the nearest value around it, where known.

    A path is written as faults write it: `tasks.test.requires[1]`, `tasks["a b"].task`.
    """
    if len(text) > PLACED_BYTES_MAX:
        return {}
    from taskyard.wire import yaml_reader  # noqa: PLC0415 - JSON is YAML too, near enough to find lines in it

    steps = {path: read_path(path) for path in paths}
    lines = yaml_reader.find_lines(text.decode("utf-8-sig"), steps.values())
    return {path: lines[steps[path]] for path in paths if steps[path] in lines}


_STEP = re.compile(r'\.?(?P<word>[\w$-]+)|\[(?P<index>[0-9]+)\]|\[(?P<quoted>"(?:[^"\\]|\\.)*")\]')


def read_path(path: str) -> Path:
    """Take a written path apart."""
    return tuple(_step(match) for match in _STEP.finditer(path))


def _step(match: re.Match[str]) -> str | int:
    if match["index"]:
        return int(match["index"])
    return match["word"] or str(json.loads(match["quoted"]))


def _decode(text: bytes) -> str:
    findings = Findings()
    if len(text) > DOCUMENT_BYTES_MAX:
        raise findings.stop(f"the document has {len(text)} bytes; at most {DOCUMENT_BYTES_MAX} are read")
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = text[: error.start].decode("utf-8-sig")
        raise findings.stop("the document is not UTF-8", *place_of(before, len(before))) from None
    if not decoded.strip():
        raise findings.stop("the document is empty")
    if (nul := decoded.find("\0")) >= 0:
        raise findings.stop("the document has a NUL character", *place_of(decoded, nul))
    return decoded


def _is_json(text: str, name: str) -> bool:
    lowered = name.lower()
    if lowered.endswith((".yaml", ".yml")):
        return False
    return lowered.endswith(".json") or text.lstrip().startswith("{")


# Reads JSON, strictly: what other readers would guess, round or drop is a fault here.
#
# The standard library parses; around it stand the checks it does not make. Nothing here recurses.


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
    """Whether lists and objects are nested too deep, level by level."""
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


# The nesting depth of a JSON text, found without parsing it.
#
# JSON parsers recurse, and how deep they get depends on their caller: a text that one part of the system reads may fail
# in another. So the depth of texts that are passed on unparsed is checked where they arrive.


#: A whole string, or brackets in a row; possessive, so that a string of megabytes takes no stack.
_STRING_OR_BRACKET: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[{]+|[\]}]+', re.DOTALL)


def is_deep(text: bytes) -> bool:
    """Whether a text nests more than `DEPTH_MAX` deep. Most are too small for that, and cost nothing."""
    if len(text) <= DEPTH_MAX or text.count(b"[") + text.count(b"{") <= DEPTH_MAX:
        return False
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        first = text[found.start()]
        if first in b"[{":
            depth += found.end() - found.start()
        elif first in b"]}":
            depth -= found.end() - found.start()
        if depth > DEPTH_MAX:
            return True
    return False
