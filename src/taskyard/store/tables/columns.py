"""How columns are spelled: one way for each sort of thing, the same on both databases."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Integer, MetaData, Text, text
from sqlalchemy.types import TypeEngine

#: Every name is given, so that a later migration can find it.
metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pk",
        "fk": "%(table_name)s_%(column_0_name)s_fk",
        "uq": "%(table_name)s_%(column_0_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s",
    }
)


def whole() -> TypeEngine[int]:
    """Whole numbers of 64 bits."""
    return BigInteger().with_variant(Integer(), "sqlite")


def key(name: str, *reference: ForeignKey) -> Column[int]:
    """A part of a key; no database numbers it."""
    return Column(name, whole(), *reference, primary_key=True, autoincrement=False)


def numbered(name: str) -> Column[int]:
    """A key that the database counts: of rows that nobody but the house itself ever names."""
    return Column(name, whole(), primary_key=True, autoincrement=True)


def count(name: str, value: int = 0) -> Column[int]:
    """A number that is always there."""
    return Column(name, whole(), nullable=False, server_default=text(str(value)))


def moment(name: str, nullable: bool = True) -> Column[int]:
    """Milliseconds since 1970."""
    return Column(name, whole(), nullable=nullable)


def words(name: str, nullable: bool = False, primary_key: bool = False) -> Column[str]:
    """Text."""
    return Column(name, Text(), nullable=nullable, primary_key=primary_key)


def one_of(column: str, allowed: Iterable[str]) -> CheckConstraint:
    """Only these words."""
    listed = ", ".join(f"'{word}'" for word in sorted(allowed))
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_is_known")


def not_negative(*columns: str) -> list[CheckConstraint]:
    """Counts that can never fall below zero."""
    return [CheckConstraint(f"{column} >= 0", name=f"{column}_is_not_negative") for column in columns]


def where(condition: str) -> dict[str, Any]:
    """An index of only some rows."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}
