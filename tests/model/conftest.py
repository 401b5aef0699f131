"""Makes pytest explain failed assertions in these helper modules as in tests."""

import pytest

for name in ("harness", "history", "machine", "paged_machine", "steps"):
    pytest.register_assert_rewrite(f"tests.model.{name}")
