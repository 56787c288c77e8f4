"""Fetches what the servers of the tests need, so that no test waits for it: `python -m tests.servers.install`."""

import subprocess
from contextlib import suppress

from tests.servers import aws, mongodb, registry, spark_jars

from penstock.base.errors import PenstockError
from penstock.cli.trial import opensearch
from penstock.cli.trial import servers as kafka

if __name__ == "__main__":
    kafka.installation()
    registry.installation()
    with suppress(OSError, subprocess.CalledProcessError):  # without npm its tests are skipped
        aws.install_kinesis()
    with suppress(PenstockError):  # without a Java compiler its tests are skipped
        opensearch.installation()
    with suppress(PenstockError):
        mongodb.install_java_server()
    for name in spark_jars.SMALL:
        with suppress(PenstockError):
            spark_jars.fetch(name)
