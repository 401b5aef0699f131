"""Reads the text of a graph document, YAML or JSON, into a plain value.

Both forms give the same values: null, true, false, 64-bit integers, finite floats, text, lists, and mappings with
text as keys. The text is hostile: size, depth and aliases are bounded before anything is built, and nothing in it is
ever called or looked up. Whether the value is a good graph is not judged here.
"""

import json
import re
from collections.abc import Collection, Mapping
from typing import Final

from taskyard.wire.faults import Fault, Findings, UnreadableDocument
from taskyard.wire.scalars import DOCUMENT_BYTES_MAX, Path, place_of

__all__ = ["DOCUMENT_BYTES_MAX", "Fault", "Path", "UnreadableDocument", "find_lines", "read_document"]

#: Faults are placed in texts up to this size, in about a second; in bigger ones their paths have to do.
PLACED_BYTES_MAX: Final = 1024 * 1024


def read_document(text: bytes, name: str = "") -> object:
    """Read YAML or JSON, told apart by the name's ending or else by a leading `{`; raise `UnreadableDocument`."""
    decoded = _decode(text)
    # A parser costs time to load, so only the one that is needed is.
    if _is_json(decoded, name):
        from taskyard.wire import json_text  # noqa: PLC0415

        return json_text.read(decoded)
    from taskyard.wire import yaml_text  # noqa: PLC0415

    return yaml_text.read(decoded)


def find_lines(text: bytes, paths: Collection[str]) -> Mapping[str, int]:
    """Say on which line of a readable document each path begins, or the nearest value around it, where known.

    A path is written as faults write it: `tasks.test.requires[1]`, `tasks["a b"].task`.
    """
    if len(text) > PLACED_BYTES_MAX:
        return {}
    from taskyard.wire import yaml_text  # noqa: PLC0415 - JSON is YAML too, near enough to find lines in it

    steps = {path: read_path(path) for path in paths}
    lines = yaml_text.find_lines(text.decode("utf-8-sig"), steps.values())
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
