"""The engine of the connectors of MySQL and MariaDB."""
