"""What commands read from the environment, each with what it says; the page of commands lists them from here."""

from collections.abc import Mapping
from typing import Final

VARIABLES: Final[Mapping[str, str]] = {
    "TASKYARD_URL": "the server's address",
    "TASKYARD_TOKEN": "the token; nobody else can see it, unlike one on a command line",
    "TASKYARD_PROFILE": "the name of one of your profiles; `TASKYARD_URL` wins over its address",
    "TASKYARD_CA_FILE": "a file with the certificate of the authority that signed the server's",
    "NO_COLOR": "if not empty: no colours and no drawing, only plain lines",
    "FORCE_COLOR": "if neither empty nor 0: colours on a pipe, too; `NO_COLOR` wins over it",
    "TERM": "`dumb` is a terminal without colours and drawing",
    "COLUMNS": "how wide tables are on a terminal, unless it says so itself",
    "PGHOST": "PostgreSQL's own: `taskyard doctor` asks the database that it names; see also the next three",
    "PGHOSTADDR": "the same by address",
    "PGSERVICE": "the same by the name of a service",
    "PGDATABASE": "the same by the name of a database",
    "XDG_CONFIG_HOME": "where `taskyard/config.toml` is; `~/.config` unless told",
    "XDG_DATA_HOME": "where `taskyard up` and bots keep things, in `taskyard`; `~/.local/share` unless told",
}
