"""How deep lists and objects of a JSON text stand inside each other, told without reading it.

Readers of JSON recurse, and how far they get depends on who calls them: what one part of the system still reads,
another may not. So whatever passes through as it was written is bounded where it comes in.
"""

import re
from typing import Final

from taskyard.wire.scalars import DEPTH_MAX

#: A whole string, or brackets in a row; possessive, so that a string of megabytes takes no stack.
_STRING_OR_BRACKETS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[{]+|[\]}]+', re.DOTALL)


def is_deep(text: bytes) -> bool:
    """Tell whether a text nests more than `DEPTH_MAX` deep. Most are too small for that, and cost nothing."""
    if len(text) <= DEPTH_MAX or text.count(b"[") + text.count(b"{") <= DEPTH_MAX:
        return False
    depth = 0
    for found in _STRING_OR_BRACKETS.finditer(text):
        first = text[found.start()]
        if first in b"[{":
            depth += found.end() - found.start()
        elif first in b"]}":
            depth -= found.end() - found.start()
        if depth > DEPTH_MAX:
            return True
    return False
