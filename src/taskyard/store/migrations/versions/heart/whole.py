"""Version 1: how numbers were stored."""

from typing import Final

import sqlalchemy as sa

#: Whole numbers of 64 bits; SQLite has only those.
WHOLE: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
