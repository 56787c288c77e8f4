"""Tables in topics of a real broker: what is inserted into them, and what is in the topics then."""

from __future__ import annotations

import json
from typing import Any

from tests.servers.kafka import KafkaCluster

from penstock.table import EnvironmentSettings, TableEnvironment


def kafka_tables(*statements: str, mode: str = "in_streaming_mode") -> TableEnvironment:
    """A session that runs in this process, after some statements."""
    tables = TableEnvironment.create(getattr(EnvironmentSettings, mode)())
    tables.get_config().set("execution.target", "local")
    for statement in statements:
        tables.execute_sql(statement)
    return tables


def kafka_ddl(kafka: KafkaCluster, topic: str, columns: str, name: str = "t", **options: str) -> str:
    """A table; `__` in names of options stand for `.` and `_` for `-`."""
    given = {"connector": "kafka", "topic": topic, "properties.bootstrap.servers": kafka.bootstrap_servers}
    given |= {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    text = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    return f"CREATE TABLE {name} ({columns}) WITH ({text})"


def insert(tables: TableEnvironment, statement: str) -> None:
    """Run it to its end."""
    tables.execute_sql(statement).wait()


def parsed(found: bytes | None) -> Any:
    """JSON; None for nothing."""
    return None if found is None else json.loads(found)


def messages(kafka: KafkaCluster, topic: str) -> list[tuple[Any, Any]]:
    """Keys and values of a topic's messages, which are JSON."""
    return [(parsed(one.key()), parsed(one.value())) for one in kafka.read(topic)]
