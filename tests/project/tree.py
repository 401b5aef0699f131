"""The project's files, its modules and their syntax trees, for the checks of the project itself."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "taskyard"
DOCS = ROOT / "docs"


#: What `make` and the tools make; `.gitignore` names the same.
MADE = {
    ".git", ".tools", ".venv", ".venv-fuzz", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache",
    ".import_linter_cache", ".taskyard", "__pycache__", "build", "dist", "site",
    "node_modules", "page", "screenshots",
}  # fmt: skip


@cache
def files() -> list[Path]:
    """Every file of the project, without what `make` made and without logs."""
    inside = (path for path in sorted(ROOT.rglob("*")) if not MADE & set(path.relative_to(ROOT).parts))
    return [path for path in inside if path.is_file() and path.name != "uv.lock" and path.suffix != ".log"]


@cache
def modules() -> list[Path]:
    return sorted(SOURCES.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[str]:
    """The modules a file names in its imports."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))
