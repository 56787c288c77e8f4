"""Options that hold secrets are shown without them."""

import json

import pytest

from penstock.base.configuration import Configuration
from penstock.base.secrets import HIDDEN, find_credentials, hide, hide_json, is_sensitive, shown


@pytest.mark.parametrize(
    "key",
    [
        "connector.Password",
        "s3.secret-key",
        "fs.azure.account.key.store.blob.core.windows.net",
        "metrics.reporter.dghttp.apikey",
        "some.api-key",
        "table.auth-params",
        "service-key",
        "penstock.rest.token",
        "rest.basic-auth",
        "security.jaas.config",
        "rest.http-headers",
    ],
)
def test_keys_of_secrets_are_known_in_any_case(key: str) -> None:
    assert is_sensitive(key)
    assert is_sensitive(key.upper())


@pytest.mark.parametrize("key", ["penstock.rest.token", "rest.http-headers", "TABLE.auth-params", "db.password"])
def test_text_that_quotes_an_option_of_sql_is_without_its_secret(key: str) -> None:
    """In logs, answers of REST and the history of statements, also of a statement that nobody has run."""
    statement = f"CREATE TABLE t (a INT) WITH ('{key}' = 'it''s hunter2', 'path' = 'here')"
    hidden = f"CREATE TABLE t (a INT) WITH ('{key}' = '{HIDDEN}', 'path' = 'here')"
    assert hide(statement) == hidden
    assert json.loads(hide_json(json.dumps({"statement": statement}))) == {"statement": hidden}
    assert find_credentials(statement) == ["it's hunter2"]


@pytest.mark.parametrize("key", ["parallelism.default", "state.backend.type", "rest.port", "security.ssl.keystore"])
def test_other_keys_are_none(key: str) -> None:
    assert not is_sensitive(key)


def test_what_is_shown_keeps_keys_and_order_and_hides_values() -> None:
    options = {"b": "1", "a.token": "hunter2", "a": "2"}
    assert list(shown(options).items()) == [("b", "1"), ("a.token", HIDDEN), ("a", "2")]
    assert options["a.token"] == "hunter2"


def test_the_text_of_a_configuration_hides_them() -> None:
    configuration = Configuration.from_dict({"parallelism.default": "2", "s3.secret-key": "quiet"})
    assert str(configuration) == str({"parallelism.default": "2", "s3.secret-key": HIDDEN})
    assert repr(configuration) == f"Configuration({configuration})"
    assert configuration.to_dict()["s3.secret-key"] == "quiet"
