"""A blank file equals what the migrations make. `python -m tests.store.test_blank` writes `blank.sql` again."""

import tempfile
from pathlib import Path

from taskyard.store import blank
from taskyard.store.migrate import NEWEST, current_version
from taskyard.store.migrations.apply import migrate

TEXT = Path(blank.__file__).with_name("blank.sql")


def migrated(folder: Path) -> str:
    migrate(f"sqlite:///{folder / 'migrated.db'}")
    return blank.dump(folder / "migrated.db")


def test_a_blank_file_is_what_the_migrations_make(tmp_path: Path) -> None:
    blank.create(tmp_path / "blank.db")
    assert blank.dump(tmp_path / "blank.db") == migrated(tmp_path)
    assert TEXT.read_text(encoding="utf-8") == migrated(tmp_path), "run `python -m tests.store.test_blank`"
    assert current_version(f"sqlite:///{tmp_path / 'blank.db'}") == NEWEST


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        TEXT.write_text(migrated(Path(folder)), encoding="utf-8")
