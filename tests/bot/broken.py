"""A module that cannot be brought, because another is not there."""

import no_such_module_anywhere  # type: ignore[import-not-found]  # noqa: F401
