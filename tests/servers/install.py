"""Fetches what the servers of the tests need, so that no test waits for it: `python -m tests.servers.install`."""

from tests.servers import registry

from penstock.cli.trial import servers as kafka

if __name__ == "__main__":
    kafka.installation()
    registry.installation()
