"""What asserts in these modules is explained like what asserts in a test."""

import pytest

for name in ("history", "machine", "paged", "premises", "steps"):
    pytest.register_assert_rewrite(f"tests.model.{name}")
