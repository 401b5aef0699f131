"""Writes output as bots would, straight into the database: tests of reading need no bot."""

import sqlite3
from typing import Any

import psycopg


def add_chunks(url: str, task: int, attempt: int, *pieces: bytes) -> None:
    """Add pieces behind those that are there."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)
        with connection:
            _add(connection, "?", task, attempt, pieces)
        connection.close()
    else:
        with psycopg.connect(url) as postgres:
            _add(postgres, "%s", task, attempt, pieces)


def _add(connection: Any, mark: str, task: int, attempt: int, pieces: tuple[bytes, ...]) -> None:
    where = f"FROM output_chunk WHERE task_id = {mark} AND attempt = {mark}"
    found = connection.execute(f"SELECT COUNT(*), COALESCE(MAX(start + length(body)), 0) {where}", (task, attempt))
    number, start = found.fetchone()
    for piece in pieces:
        number += 1
        row = (task, attempt, number, start, piece)
        marks = ", ".join([mark] * len(row))
        connection.execute(f"INSERT INTO output_chunk (task_id, attempt, number, start, body) VALUES ({marks})", row)  # noqa: S608
        start += len(piece)
