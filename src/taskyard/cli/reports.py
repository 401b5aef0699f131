"""What is written to stdout for whoever asked, and to stderr for whoever looks on: lines, and faults in them."""

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from taskyard.cli import text

if TYPE_CHECKING:
    from taskyard.wire.documents import Fault


def delivered(write: Callable[[], object]) -> bool:
    """Write to stdout; False if that cannot be. A reader that has left has what it wanted, so that is no failure."""
    try:
        write()
        sys.stdout.flush()
    except BrokenPipeError:
        _silence()
    except OSError as error:
        _silence()
        say_error(f"cannot write to stdout: {error.strerror}")
        return False
    return True


def say_faults(name: str, faults: "Iterable[Fault]") -> None:
    """List what is wrong with a document, a line for each fault, the place first as compilers do."""
    listed = tuple(faults)
    talk(f"{text.harmless(name)} cannot be run: {text.many(len(listed), 'fault')}; nothing was started.")
    for fault in listed:
        talk(f"  {text.harmless(_place(name, fault))}: {text.harmless(fault.message)}")


def list_faults(faults: Iterable[tuple[str, str]]) -> None:
    """List what a server found wrong, each with its place."""
    for path, message in faults:
        talk(f"  {text.harmless(path)}: {text.harmless(message)}" if path else f"  {text.harmless(message)}")


def say_error(message: str) -> None:
    """Say why something could not be done."""
    talk(f"taskyard: {text.harmless(message)}")


def answer(line: str) -> None:
    """Write a line for whoever asked."""
    sys.stdout.write(line + "\n")


def talk(line: str) -> None:
    """Write a line for whoever looks on; if nobody does any more, nothing is lost."""
    with suppress(OSError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def _silence() -> None:
    # Python writes what is left once more at its end, and would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _place(name: str, fault: "Fault") -> str:
    numbers = [str(number) for number in (fault.line, fault.column) if number is not None]
    place = ":".join([name, *numbers])
    return f"{place}: {fault.path}" if fault.path else place
