"""Checks that a server allows change data capture; each error names the variable and the remedy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.connectors.mysql import client

if TYPE_CHECKING:
    from penstock.connectors.mysql.cdc.database import MySqlDatabase

#: variables, their values in upper case, and how to set them
_REQUIRED: Final = (
    ("log_bin", ("ON", "1"), "start the server with log_bin, so that it writes a binary log"),
    ("binlog_format", ("ROW",), "SET GLOBAL binlog_format = 'ROW'"),
    ("binlog_row_image", ("FULL",), "SET GLOBAL binlog_row_image = 'FULL'"),
    ("log_bin_compress", ("OFF", "0"), "SET GLOBAL log_bin_compress = OFF"),
)
_PRIVILEGES: Final = {
    "REPLICATION SLAVE": "to read the log",
    "REPLICATION CLIENT": "to read positions in the log",
}
_OTHER_NAMES: Final = {
    "REPLICATION CLIENT": ("BINLOG MONITOR",),
    "REPLICATION SLAVE": ("REPLICATION REPLICA",),
}


def check_server(database: MySqlDatabase) -> None:
    """Check the variables of the server, and the privileges of the user.

    Raises:
        ConfigurationError: if the server does not log full rows, or the user may not read its log.
        UnsupportedError: if it logs parts of JSON values.
    """
    with database.session() as connection:
        check_variables(
            client.read_variables(
                connection,
                *(name for name, _, _ in _REQUIRED),
                "binlog_row_value_options",
                "binlog_transaction_compression",
            ),
            database.settings.address.shown,
        )
        check_privileges(connection)


def check_variables(variables: dict[str, str], server: str) -> None:
    """Check the variables of a server, by name; variables that the server lacks are absent."""
    for name, values, remedy in _REQUIRED:
        value = variables.get(name)
        if value is not None and value.upper() not in values:
            raise ConfigurationError(
                f"{server} has {name} = {value}, but changes are captured with {values[0]}: {remedy}. What was logged "
                "before stays as it is, so begin without the state of a job"
            )
    if "PARTIAL_JSON" in variables.get("binlog_row_value_options", "").upper():
        raise UnsupportedError(
            f"{server} has binlog_row_value_options = PARTIAL_JSON, so the log has only parts of JSON values: "
            "SET GLOBAL binlog_row_value_options = ''"
        )


def check_privileges(connection: Any) -> None:
    """Check that the user may read the log.

    Raises:
        ConfigurationError: otherwise; the message has the GRANT.
    """
    grants = " ".join(str(row[0]) for row in client.query(connection, "SHOW GRANTS")).upper()
    given = {part.strip() for match in re.findall(r"GRANT (.*?) ON ", grants) for part in match.split(",")}
    if given & {"ALL PRIVILEGES", "ALL"} or re.search(r"GRANT [^ ]+ TO ", grants):
        return  # everything, or roles, whose grants are not shown
    for privilege, purpose in _PRIVILEGES.items():
        if not given & {privilege, *_OTHER_NAMES.get(privilege, ())}:
            ((user,),) = client.query(connection, "SELECT CURRENT_USER()")
            raise ConfigurationError(f"user {user} lacks a privilege {purpose}: GRANT {privilege} ON *.* TO {user}")
