"""Reads YAML into JSON's values, event by event, on a stack of its own.

The parser's events are all that is taken from YAML: no node is composed and no object is constructed, so depth, size
and aliases are judged before anything grows. `null`, `~`, nothing, `true`, `false` and numbers spelled as in JSON are
what they look like; all else is text: `on`, `no`, `12:30`, `010` and `2024-01-01` mean what they say.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
)

from taskyard.wire.documents import (
    DEPTH_MAX,
    DOCUMENT_BYTES_MAX,
    Findings,
    Path,
    UnreadableDocument,
    place_of,
    read_float,
    read_integer,
)

#: Half a second of reading. A bigger graph is made by a program, and JSON is read more than twice as fast.
YAML_TASKS_MAX = 10_000
#: A hundred nodes for each of the most tasks, counted as if every alias were written out.
YAML_NODES_MAX = 1_000_000

#: The parser in C is ten times faster; both give the same events.
_LOADER: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STANDARD = "tag:yaml.org,2002:"
#: The tags that name one of JSON's values, with the type their text has to read as.
_SCALAR_TAGS: Mapping[str, type] = {
    _STANDARD + "null": type(None),
    _STANDARD + "bool": bool,
    _STANDARD + "int": int,
    _STANDARD + "float": float,
    _STANDARD + "str": str,
    "!": str,
}
_MAPPING_TAGS = {None, "!", _STANDARD + "map"}
_LIST_TAGS = {None, "!", _STANDARD + "seq"}

_WORDS: Mapping[str, bool | None] = {"": None, "~": None, "null": None, "true": True, "false": False}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<fraction>\.[0-9]+)?(?P<exponent>[eE][-+]?[0-9]+)?")
#: What the parser would stop at; looked for first, so that every one is listed.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: What only an escape in a quoted text can bring in, and no store can keep.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def read(text: str) -> object:
    """Read the one document in `text`."""
    return _read(text, _Builder())


def read_all(text: str) -> list[object]:
    """Read all documents in `text`."""
    found: list[object] = []
    _read(text, _Builder(found))
    return found


def _read(text: str, builder: "_Builder") -> object:
    for match in _UNPRINTABLE.finditer(text):
        builder.findings.add(f"the character U+{ord(match[0]):04X} is not allowed", *place_of(text, match.start()))
    builder.findings.refuse()
    for event in _events(text, builder.findings):
        builder.take(event)
    return builder.finish()


def is_plain_text(text: str) -> bool:
    """Whether a scalar that is written without quotes is read as this text, and not as a number or a word."""
    return text not in _WORDS and _NUMBER.fullmatch(text) is None


def find_lines(text: str, paths: Collection[Path], *, several: bool = False) -> Mapping[Path, int]:
    """Return on which line each path begins, or the nearest value around it that stands in the text.

    With `several` documents, a path begins with the number of its document, from 0.
    """
    walk, lines = _Walk(several), dict[tuple[str | int | None, ...], int]()
    try:
        for event in _events(text, Findings()):
            if (path := walk.take(event)) is not None:
                lines.setdefault(path, _place(event)[0])
    except UnreadableDocument:
        pass  # JSON that is no YAML keeps the lines found so far
    nearest = {path: _nearest(path, lines) for path in paths}
    return {path: line for path, line in nearest.items() if line is not None}


def _nearest(path: Path, lines: Mapping[tuple[str | int | None, ...], int]) -> int | None:
    around = (path[:length] for length in range(len(path), -1, -1))
    return next((lines[outer] for outer in around if outer in lines), None)


def _events(text: str, findings: Findings) -> Iterator[Event]:
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (None, None)
        hint = "; indent with spaces, not with tabs" if mark and _is_tab(text, mark.line, mark.column) else ""
        raise findings.stop(f"not YAML: {error.problem or error.context}{hint}", *place) from None
    except yaml.YAMLError as error:
        raise findings.stop(f"not YAML: {error}") from None


def _is_tab(text: str, line: int, column: int) -> bool:
    lines = text.splitlines()
    return line < len(lines) and lines[line][column : column + 1] == "\t"


@dataclass(slots=True)
class _Open:
    """A mapping or a list whose end is not read yet."""

    value: dict[str, object] | list[object]
    event: NodeEvent
    nodes_before: int
    bytes_before: int
    height: int = 1
    key: str | None = None  # of the value that comes next
    lines: dict[str, int] = field(default_factory=dict)  # where each key was first seen


@dataclass(frozen=True, slots=True)
class _Anchored:
    """A value that aliases may stand for, and what it weighs when written out."""

    value: object
    nodes: int
    bytes: int
    height: int


class _Builder:
    """Takes events, gives a value."""

    def __init__(self, several: list[object] | None = None) -> None:
        """Take where to put several documents; without that, there has to be one."""
        self.findings = Findings()
        self._takes_several = several is not None
        self._root: list[object] = [] if several is None else several
        self._stack: list[_Open] = []
        self._anchored: dict[str, _Anchored] = {}
        self._nodes = 0
        self._bytes = 0

    def take(self, event: Event) -> None:
        if isinstance(event, ScalarEvent):
            self._scalar(event)
        elif isinstance(event, CollectionStartEvent):
            self._open(event)
        elif isinstance(event, CollectionEndEvent):
            self._close()
        elif isinstance(event, AliasEvent):
            self._alias(event)
        elif isinstance(event, DocumentStartEvent) and self._takes_several:
            self._anchored.clear()
        elif isinstance(event, DocumentStartEvent) and self._root:
            raise self.findings.stop("a second document begins here; one file is one graph", *_place(event))

    def finish(self) -> object:
        if not self._root:
            raise self.findings.stop("the document is empty")
        root = self._root[0]
        tasks = root.get("tasks") if isinstance(root, dict) else None
        if isinstance(tasks, dict) and len(tasks) > YAML_TASKS_MAX:
            self.findings.add(f"{len(tasks)} tasks are too many for YAML: beyond {YAML_TASKS_MAX}, use JSON")
        self.findings.refuse(root)
        return root

    def _scalar(self, event: ScalarEvent) -> None:
        value = self._read(event)
        self._weigh(1, len(event.value), 0, event)
        if event.anchor:
            self._anchored[event.anchor] = _Anchored(value, 1, len(event.value), 0)
        self._put(value, 0, event)

    def _open(self, event: CollectionStartEvent) -> None:
        is_mapping = isinstance(event, MappingStartEvent)
        if event.tag not in (_MAPPING_TAGS if is_mapping else _LIST_TAGS):
            self._refuse_tag(event)
        opened = _Open({} if is_mapping else [], event, self._nodes, self._bytes)
        self._weigh(1, 0, 1, event)
        if event.anchor:
            # Until it is closed, an alias to it would hold itself.
            self._anchored.pop(event.anchor, None)
        self._stack.append(opened)

    def _close(self) -> None:
        closed = self._stack.pop()
        if closed.event.anchor:
            weight = self._nodes - closed.nodes_before, self._bytes - closed.bytes_before
            self._anchored[closed.event.anchor] = _Anchored(closed.value, *weight, closed.height)
        self._put(closed.value, closed.height, closed.event)

    def _alias(self, event: AliasEvent) -> None:
        known = self._anchored.get(str(event.anchor))
        if known is None:
            inside = any(opened.event.anchor == event.anchor for opened in self._stack)
            problem = "stands for what it is in" if inside else "has no anchor before it"
            self.findings.add(f"the alias *{event.anchor} {problem}", *_place(event))
            known = _Anchored(None, 1, 0, 0)
        self._weigh(known.nodes, known.bytes, known.height, event)
        self._put(known.value, known.height, event)

    def _weigh(self, nodes: int, size: int, height: int, event: Event) -> None:
        self._nodes += nodes
        self._bytes += size
        if len(self._stack) + height > DEPTH_MAX:
            raise self.findings.stop(f"nested more than {DEPTH_MAX} deep", *_place(event))
        if self._nodes > YAML_NODES_MAX:
            raise self.findings.stop(f"more than {YAML_NODES_MAX} values, aliases written out", *_place(event))
        if self._bytes > DOCUMENT_BYTES_MAX:
            raise self.findings.stop(f"more than {DOCUMENT_BYTES_MAX} bytes, aliases written out", *_place(event))

    def _put(self, value: object, height: int, event: Event) -> None:
        if not self._stack:
            self._root.append(value)
            return
        around = self._stack[-1]
        around.height = max(around.height, height + 1)
        if isinstance(around.value, list):
            around.value.append(value)
        elif around.key is None:
            around.key = self._key(value, around, event)
        else:
            around.value[around.key] = value
            around.key = None

    def _key(self, value: object, around: _Open, event: Event) -> str:
        line, column = _place(event)
        key = str(value)
        if not isinstance(value, str):
            self.findings.add(f"a key has to be text, not {_spelled(value)}", line, column)
        elif key == "<<" and isinstance(event, ScalarEvent) and event.implicit[0]:
            self.findings.add("merge keys (<<) are not read; write the fields out", line, column)
        elif key in around.lines:
            self.findings.add(f"the key {key!r} is there twice, first on line {around.lines[key]}", line, column)
        around.lines.setdefault(key, line)
        return key

    def _read(self, event: ScalarEvent) -> object:
        if _UNSTORABLE.search(event.value):
            self.findings.add("text must not have NUL or half of a surrogate pair", *_place(event))
        if event.tag is None:
            return self._plain(event) if event.implicit[0] else event.value
        expected = _SCALAR_TAGS.get(event.tag)
        if expected is None:
            self._refuse_tag(event)
        if expected in (None, str):
            return event.value
        value = self._plain(event)
        if type(value) is not expected:
            self.findings.add(f"{event.value!r} is not what its tag {_tag(event)} says", *_place(event))
        return value

    def _plain(self, event: ScalarEvent) -> object:
        text = event.value
        if text in _WORDS:
            return _WORDS[text]
        number = _NUMBER.fullmatch(text)
        if not number:
            return text
        read_number = read_float if number["fraction"] or number["exponent"] else read_integer
        return read_number(text, self.findings, *_place(event))

    def _refuse_tag(self, event: ScalarEvent | CollectionStartEvent) -> None:
        self.findings.add(f"the tag {_tag(event)} is not allowed", *_place(event))


def _place(event: Event) -> tuple[int, int]:
    assert event.start_mark is not None
    return event.start_mark.line + 1, event.start_mark.column + 1


def _tag(event: ScalarEvent | CollectionStartEvent) -> str:
    tag = str(event.tag)
    return "!!" + tag.removeprefix(_STANDARD) if tag.startswith(_STANDARD) else tag


def _spelled(value: object) -> str:
    return "a list or a mapping" if isinstance(value, list | dict) else f"{json.dumps(value)}; quote it"


class _Walk:
    """Where in a document its events are: the key or index at every level, or None where a key comes next."""

    def __init__(self, several: bool = False) -> None:
        self._steps: list[str | int | None] = [0] if several else []

    def take(self, event: Event) -> tuple[str | int | None, ...] | None:
        """Return the path that this event is part of, if it begins a key or a value."""
        if isinstance(event, CollectionEndEvent):
            self._steps.pop()
            self._advance()
        if not isinstance(event, NodeEvent):
            return None
        if self._steps and self._steps[-1] is None:
            self._steps[-1] = event.value if isinstance(event, ScalarEvent) else ""
            return tuple(self._steps)
        path = tuple(self._steps)
        if isinstance(event, CollectionStartEvent):
            self._steps.append(None if isinstance(event, MappingStartEvent) else 0)
        else:
            self._advance()
        return path

    def _advance(self) -> None:
        if self._steps:
            last = self._steps[-1]
            self._steps[-1] = last + 1 if isinstance(last, int) else None
