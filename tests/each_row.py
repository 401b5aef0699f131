"""One test that goes through the rows of a table, where a test for each row would make hundreds."""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from inspect import signature
from typing import Any

from _pytest.mark import ParameterSet


def each_row(
    names: str | tuple[str, ...], rows: Iterable[Any], ids: Sequence[str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with each row of a table; a failure names its row. The arguments are those of `parametrize`."""
    columns = (names,) if isinstance(names, str) else names
    table = [ParameterSet.extract_from(row, force_tuple=isinstance(names, str)) for row in rows]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def loop(**others: Any) -> None:
            assert table, "the table has no rows"
            for place, row in enumerate(table):
                try:
                    test(**dict(zip(columns, row.values, strict=True)), **others)
                except BaseException as fault:
                    fault.add_note(f"in the row {ids[place] if ids else row.id or row.values!r}")
                    raise

        taken = signature(test)
        others = [one for one in taken.parameters.values() if one.name not in columns]
        loop.__signature__ = taken.replace(parameters=others)  # type: ignore[attr-defined]
        return loop

    return decorate
