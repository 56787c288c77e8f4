"""The address and token of the REST API: from the command line, else the environment, else the configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from penstock.base.errors import WrongValueError
from penstock.base.options import REST_TOKEN
from penstock.drivers.settings.defaults import COMMAND_LINE, Setting, default_settings

#: The environment variable for the token, which keeps it out of process lists.
TOKEN_VARIABLE: Final = "PENSTOCK_REST_TOKEN"
#: The option for the token.
TOKEN_OPTION: Final = "penstock.rest.token"
HOST: Final = "localhost"
PORT: Final = "8081"


@dataclass(frozen=True, slots=True)
class Address:
    """The root of the REST API, such as `http://localhost:8081`, and the token to send, if any.

    `certificate` is a file of certificates to trust in place of the system's; None for the system's.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    certificate: str | None = None


def parse_options(properties: Sequence[str]) -> dict[str, str]:
    """Parse options given as `key=value`.

    Raises:
        WrongValueError: for an option of another form.
    """
    options = {}
    for option in properties:
        key, equals, value = option.partition("=")
        if not key.strip() or not equals:
            raise WrongValueError(f"-D takes key=value, not {option!r}")
        options[key.strip()] = value.strip()
    return options


def resolve_settings(options: Mapping[str, str]) -> dict[str, Setting]:
    """Return the settings outside of programs: these command line options, over `config.yaml`."""
    return default_settings() | {key: Setting(value, COMMAND_LINE) for key, value in options.items()}


def resolve_address(jobmanager: str | None, options: Mapping[str, str]) -> Address:
    """Return the address to send requests to.

    Args:
        jobmanager: `host:port` or a URL; None for `rest.address` and `rest.port` of the options, else localhost:8081.
        options: options of the command line.

    Raises:
        WrongValueError: if it is not a valid address.
        ConfigurationError: if `config.yaml` cannot be read, or the token is blank.
    """
    settings = {key: setting.value for key, setting in resolve_settings(options).items()}
    scheme = "https" if settings.get("security.ssl.rest.enabled", "").lower() == "true" else "http"
    address = jobmanager or f"{settings.get('rest.address', HOST)}:{settings.get('rest.port', PORT)}"
    url = address.rstrip("/") if "://" in address else f"{scheme}://{address}"
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port is not None
    except ValueError:
        known = False
    if not known:
        raise WrongValueError(f"-m takes host:port, such as {HOST}:{PORT}, not {address!r}")
    given = options.get(TOKEN_OPTION)
    if given is None:
        given = os.environ.get(TOKEN_VARIABLE) or settings.get(TOKEN_OPTION)
    token = token_of_session(url) if given is None else REST_TOKEN.convert(given)
    return Address(url, token, settings.get("security.ssl.rest.certificate"))


def token_of_session(url: str) -> str | None:
    """Return the token of this user's session at a URL on this host; None without such a session."""
    from penstock.service.client.sessions import find_session

    known = find_session(url)
    return None if known is None else known.token
