"""Words for people: text made harmless, times made short, counts put in a sentence.

What tasks print and what documents say is hostile. `harmless` is the one way for it to a terminal.
"""

import re
import unicodedata

#: A failure's last lines, enough to see it and few enough to see the next one.
TAIL_LINES_MAX = 10
#: One line of output on a few lines of a terminal; a minified file must not fill the screen.
LINE_LENGTH_MAX = 400
#: A line that does not end is shown in pieces of this length.
LINE_BYTES_MAX = 8_192

#: Sequences that a terminal obeys: OSC and its like with their text (in one line: an end that is missing must not hide
#: what follows), CSI, then any other escape.
_ESCAPES = re.compile(
    "(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?"
    "|\x1b[ -/]*[0-~]?"
)
#: Controls, invisible marks that turn the reading order, surrogates, line separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def harmless(text: str) -> str:
    """Give one line of text that no terminal obeys: escapes are dropped, other hidden characters spelled out."""
    plain = _ESCAPES.sub("", text).replace("\t", "    ")
    return plain if plain.isascii() and plain.isprintable() else "".join(map(_visible, plain))


def last_lines(tail: str, lines_max: int = TAIL_LINES_MAX) -> list[str]:
    """Give the last lines that a task printed, each harmless and of a bounded length."""
    # A lone carriage return starts the line again: a terminal would show only what came last.
    plain = re.sub(r"\r+\n", "\n", _ESCAPES.sub("", tail))
    lines = [line.rpartition("\r")[2] for line in plain.split("\n")]
    shown = [_cut(harmless(line.rstrip())) for line in lines if line.strip()]
    return shown[-lines_max:]


def shown_line(line: bytes) -> str:
    """Give a line that a task printed as a terminal may show it: what came last in it, and nothing to obey."""
    # A lone carriage return starts the line again: a terminal would show only what came last.
    return harmless(line.decode(errors="replace").rstrip("\r").rpartition("\r")[2])


class Lines:
    """Cuts what comes in pieces into lines of a bounded length."""

    def __init__(self, start: int = 0) -> None:
        """Begin with a byte: the first, unless told."""
        self.at = start  # where the line begins that has no end yet
        self._rest = b""

    def of(self, piece: bytes) -> list[bytes]:
        """Give the lines that a piece completes."""
        return [line for _, line in self.placed(piece)]

    def placed(self, piece: bytes) -> list[tuple[int, bytes]]:
        """Give the lines that a piece completes, each with the byte that it begins with."""
        *lines, rest = (self._rest + piece).split(b"\n")
        found: list[tuple[int, bytes]] = []
        for line in lines:
            found.append((self.at, line))
            self.at += len(line) + 1
        while len(rest) > LINE_BYTES_MAX:
            found.append((self.at, rest[:LINE_BYTES_MAX]))
            rest = rest[LINE_BYTES_MAX:]
            self.at += LINE_BYTES_MAX
        self._rest = rest
        return found

    def rest(self) -> list[bytes]:
        """Give the last line, if it has no end."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


def seconds(elapsed_ms: int) -> str:
    """Spell a duration."""
    if elapsed_ms < 60_000:
        return f"{elapsed_ms / 1000:.1f} s"
    minutes, rest = divmod(elapsed_ms // 1000, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def many(count: int, noun: str) -> str:
    """Count a noun: `1 task`, `2 tasks`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _visible(character: str) -> str:
    if unicodedata.category(character) in _HIDDEN:
        return character.encode("unicode_escape").decode()
    return character


def _cut(line: str) -> str:
    return line if len(line) <= LINE_LENGTH_MAX else f"{line[:LINE_LENGTH_MAX]} ..."
