"""A module that cannot be imported, because a module that it imports does not exist."""

import no_such_module_anywhere  # type: ignore[import-not-found]  # noqa: F401
