"""Lineage: which datasets a job reads and writes, and which columns come from which.

Sources and sinks describe their datasets (`describe_lineage`), by OpenLineage's rules for namespaces and names. The SQL
planner describes those of tables. `penstock.server.lineage` makes events of them.

Source: Flink's `LineageVertexProvider` (FLIP-314); "Naming conventions" of OpenLineage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from penstock.base.config_options import POSITIVE, SECRET, STRING, choice, option, unset

_LOCAL: Final = ("", "file")
#: ports that addresses may leave out
_PORTS: Final = {"postgresql": 5432, "postgres": 5432, "mysql": 3306, "mariadb": 3306}


@dataclass(frozen=True, slots=True)
class InputField:
    """A column that another one is computed from.

    Attributes:
        namespace: the namespace of its dataset.
        name: the name of its dataset.
        field: the name of the column.
        is_direct: whether values come from it; otherwise it only decides which rows there are.
        kind: how, such as IDENTITY, TRANSFORMATION, AGGREGATION, FILTER, JOIN or GROUP_BY.
    """

    namespace: str
    name: str
    field: str
    is_direct: bool = True
    kind: str = "IDENTITY"


@dataclass(frozen=True, slots=True)
class LineageDataset:
    """A dataset that a job reads or writes.

    Attributes:
        namespace: where it is, such as `kafka://broker:9092`.
        name: its name there, such as a topic.
        fields: the names of its columns with their types; empty if they are not known.
        columns: for an output, what its columns are computed from, by name.
        rows: for an output, the columns that decide which rows it has.
        catalog_name: the name of its table in a catalog; None if it has none.
    """

    namespace: str
    name: str
    fields: tuple[tuple[str, str], ...] = ()
    columns: Mapping[str, tuple[InputField, ...]] = field(default_factory=dict)
    rows: tuple[InputField, ...] = ()
    catalog_name: str | None = None


def name_location(location: str) -> tuple[str, str]:
    """Return the namespace and the name of a file or a folder.

    >>> name_location("s3://bucket/orders/"), name_location("/data/orders"), name_location("hdfs://node:8020/orders")
    (('s3://bucket', 'orders'), ('file', '/data/orders'), ('hdfs://node:8020', '/orders'))
    """
    parts = urlsplit(location)
    if parts.scheme in _LOCAL:
        return "file", parts.path.rstrip("/") or "/"
    scheme = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/")
    is_bucket = scheme in ("s3", "gs")
    return f"{scheme}://{parts.netloc}", (path.lstrip("/") if is_bucket else path) or "/"


def name_database(url: str) -> tuple[str, str]:
    """Return the namespace of a database server and the name of its database, given a URL with or without `jdbc:`.

    >>> name_database("jdbc:postgresql://ann:secret@db/shop?x=1")
    ('postgres://db:5432', 'shop')
    """
    parts = urlsplit(url.removeprefix("jdbc:"))
    scheme = {"postgresql": "postgres", "mariadb": "mysql"}.get(parts.scheme, parts.scheme)
    host = parts.netloc.rpartition("@")[2].split(",")[0]
    if ":" not in host and parts.scheme in _PORTS:
        host = f"{host}:{_PORTS[parts.scheme]}"
    return f"{scheme}://{host}", parts.path.strip("/")


def name_kafka(bootstrap_servers: str) -> str:
    """Return the namespace of a cluster: its first server.

    >>> name_kafka("SASL_SSL://broker-1:9092, broker-2:9092")
    'kafka://broker-1:9092'
    """
    return f"kafka://{bootstrap_servers.split(',')[0].strip().rpartition('//')[2]}"


# Lineage ------------------------------------------------------------------------------------------------------------

TRANSPORT = unset(
    "openlineage.transport.type",
    choice("file", "http", "console"),
    "Where run events of OpenLineage go: `file`, `http` or `console`. Without it there are none.",
)
LOCATION = unset(
    "openlineage.transport.location", STRING, "With `file`: the file to which events are appended, one a line."
)
URL = unset("openlineage.transport.url", STRING, "With `http`: the server, such as `http://marquez:5000`.")
ENDPOINT = unset(
    "openlineage.transport.endpoint", STRING, "With `http`: the path behind the URL; `api/v1/lineage` unless set."
)
API_KEY = unset(
    "openlineage.transport.auth.apiKey", SECRET, "With `http`: a key that is sent as `Authorization: Bearer …`."
)
TIMEOUT_MS = option(
    "openlineage.transport.timeoutInMillis", POSITIVE, 5_000, "With `http`: how long a request may take, in ms."
)
NAMESPACE = option("openlineage.job.namespace", STRING, "penstock", "The namespace of the job in lineage events.")
JOB_NAME = unset("openlineage.job.name", STRING, "The name of the job in lineage events, if it is another one.")
PARENT_NAMESPACE = unset(
    "openlineage.parentJobNamespace", STRING, "The namespace of the job that started this one, such as a scheduler's."
)
PARENT_NAME = unset("openlineage.parentJobName", STRING, "The name of the job that started this one.")
PARENT_RUN = unset("openlineage.parentRunId", STRING, "The run of the job that started this one, a UUID.")
