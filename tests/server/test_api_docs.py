"""The pages about the API are complete: every limit and every route is on them."""

import re
from pathlib import Path

from docs.generate import limits_in
from tests.each_row import each_row
from tests.project.tree import DOCS, SOURCES, modules

LIMITS = (DOCS / "limits.md").read_text(encoding="utf-8")
#: A limit that is only a part of another one, or of a sentence.
WITHIN = re.compile(r"^([A-Z][A-Z_]*_MAX(?:_MS|_S)?)(?:: Final)? = ", re.MULTILINE)
BOUNDING = [path for path in modules() if path.relative_to(SOURCES).parts[0] in {"server", "views", "wire"}]


@each_row("path", BOUNDING)
def test_every_limit_is_on_the_page_of_limits(path: Path) -> None:
    found = WITHIN.findall(path.read_text(encoding="utf-8"))
    module = ".".join(path.relative_to(SOURCES).with_suffix("").parts)
    assert [limit for limit in found if f"| `{limit}` | `{module}` |" not in LIMITS] == []


def test_a_limit_is_listed_with_its_reason() -> None:
    from taskyard.server import auth  # noqa: PLC0415

    assert limits_in(auth)["CACHE_S"] == "How long a token lookup is cached."


def test_the_page_of_the_api_names_every_problem() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    texts = "".join(path.read_text(encoding="utf-8") for path in (SOURCES / "server").rglob("*.py"))
    codes = set(re.findall(r'(?:refused|Denial)\(\s*\d{3}, "(\w+)"', texts))
    assert [code for code in sorted(codes) if f"`{code}`" not in page] == []
    assert len(codes) > 5
