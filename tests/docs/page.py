"""Reads the steps of a docs page: files to write, commands to type, and the output that they should print.

- A fenced block after a paragraph that ends with "to `NAME`:" is a file.
- A block of `console` has commands after `$ ` (further lines of one after `> `), each with its output. More words after
  `console` name another terminal.
- In the output, `…` stands for anything in a line, and a line with only `…` for any lines.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCED = re.compile(r"^```(?P<words>[^\n]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
_NAMED = re.compile(r"\bto\s+`(?P<name>[^`\s]+)`:\s*$")
_ANY = "…"


@dataclass(frozen=True)
class Written:
    """A file, to be written to the current folder."""

    name: str
    text: str
    line: int


@dataclass(frozen=True)
class Typed:
    """A command, typed at a terminal, and the lines that it should print."""

    terminal: str
    command: str
    shown: tuple[str, ...]
    line: int

    def is_shown_by(self, printed: str) -> bool:
        """Whether the output is what the page shows."""
        lines = printed.rstrip("\n").splitlines()
        return re.fullmatch(_pattern(self.shown), "".join(f"{line}\n" for line in lines)) is not None


def steps(page: Path) -> list[Written | Typed]:
    """The steps of a reader, in order."""
    text = page.read_text(encoding="utf-8")
    found: list[Written | Typed] = []
    for block in _FENCED.finditer(text):
        line = text.count("\n", 0, block.start()) + 2
        kind, _, words = block["words"].partition(" ")
        if kind == "console":
            found += _typed(words, block["body"].splitlines(), line)
        elif named := _NAMED.search(text[: block.start()]):
            found.append(Written(named["name"], block["body"], line))
    return found


def _typed(terminal: str, lines: list[str], first: int) -> Iterator[Typed]:
    """The commands of a block."""
    starts = [at for at, line in enumerate(lines) if line.startswith("$ ")]
    assert starts[:1] == [0], f"line {first}: a block of console begins with a command"
    for at, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        rest = next((one for one in range(at + 1, end) if not lines[one].startswith("> ")), end)
        command = "\n".join(line[2:] for line in lines[at:rest])
        yield Typed(terminal, command, tuple(lines[rest:end]), first + at)


def _pattern(shown: tuple[str, ...]) -> str:
    """A pattern for the lines of a page."""
    return "".join(r"(?:[^\n]*\n)*" if one.strip() == _ANY else _line(one) + r"\n" for one in shown)


def _line(one: str) -> str:
    return r"[^\n]*".join(re.escape(part) for part in one.split(_ANY))
