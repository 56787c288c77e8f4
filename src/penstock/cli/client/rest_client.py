"""The client of Flink's REST API, the address and token that it uses, and the registered sessions of this user.

**Address and token.** The address comes from the command line, else from the configuration, else it is localhost:8081.
The token comes from the command line, else from the environment, else from the configuration, else from this user's
session at the address.

`RestClient` reports errors of the API in one line.

**Sessions of this user on this host.** Each has one file in `~/.penstock/sessions`, locked while the session lives. The
file contains the session's address and token, and only the user can read it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import msgspec

from penstock.base.errors import OperationError, WrongValueError
from penstock.base.options import REST_TOKEN
from penstock.drivers.global_configuration import COMMAND_LINE, Setting, default_settings

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


def resolve_address(jobmanager: str | None, options: Mapping[str, str], flag: str = "-m", port: str = PORT) -> Address:
    """Return the address to send requests to.

    Args:
        jobmanager: `host:port` or a URL; None for `rest.address` and `rest.port` of the options, else localhost:8081.
        options: options of the command line.
        flag: the name of the argument on the command line.
        port: the usual port, for messages.

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
        raise WrongValueError(f"{flag} takes host:port, such as {HOST}:{port}, not {address!r}")
    given = options.get(TOKEN_OPTION)
    if given is None:
        given = os.environ.get(TOKEN_VARIABLE) or settings.get(TOKEN_OPTION)
    token = token_of_session(url) if given is None else REST_TOKEN.convert(given)
    return Address(url, token, settings.get("security.ssl.rest.certificate"))


def token_of_session(url: str) -> str | None:
    """Return the token of this user's session at a URL on this host; None without such a session."""
    known = find_session(url)
    return None if known is None else known.token


#: The timeout (s) of an answer. Longer operations are triggered and polled.
ANSWER_SECONDS: Final = 60.0
#: The shortest and the longest pause (s) between polls of a trigger.
PAUSE_SECONDS: Final = (0.05, 1.0)


class RestClient:
    """A client of one server."""

    #: the remedy if nothing answers
    remedy = "start a job with penstock run, or name its address with -m host:port"

    def __init__(self, address: Address, sleep: Callable[[float], None] = time.sleep) -> None:
        self.address = address
        self._sleep = sleep

    def get(self, path: str) -> Any:
        """Send a GET request and return the answer, parsed from JSON."""
        return self.request("GET", path)

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Send a request and return the answer, parsed from JSON.

        Raises:
            OperationError: with the server's message, or because there is no answer.
        """
        text = self.text(method, path, body)
        try:
            return json.loads(text) if text else {}
        except json.JSONDecodeError as error:
            url = self.address.url
            raise OperationError(f"{url}{path} answers no JSON: is this the REST API of Flink or Penstock?") from error

    def text(self, method: str, path: str, body: object = None) -> str:
        """Send a request and return the answer as text; see `request`."""
        with self._open(method, path, body) as response:
            return response.read().decode("utf-8", "replace")

    def completed(self, path: str) -> dict[str, Any]:
        """Wait until a triggered operation is over, and return it.

        Raises:
            OperationError: with the reason, if the operation failed.
        """
        pause, longest = PAUSE_SECONDS
        while (answer := self.get(path))["status"]["id"] != "COMPLETED":
            self._sleep(pause)
            pause = min(2 * pause, longest)
        operation: dict[str, Any] = answer.get("operation") or {}
        cause = operation.get("failure-cause") or operation.get("failureCause")
        if cause:
            raise OperationError(first_line(cause.get("stack-trace") or cause.get("class") or "the operation failed"))
        return operation

    def upload(self, path: str, field: str, name: str, content: bytes) -> Any:
        """Send a file in a form and return the answer, parsed from JSON.

        Raises:
            OperationError: with the server's message, or because there is no answer.
        """
        boundary = secrets.token_hex(16)
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\n'
        kind = "Content-Type: application/octet-stream\r\n\r\n"
        form = (head + kind).encode() + content + f"\r\n--{boundary}--\r\n".encode()
        with self._sent("POST", path, form, f"multipart/form-data; boundary={boundary}") as response:
            return json.loads(response.read())

    def _open(self, method: str, path: str, body: object) -> HTTPResponse:
        return self._sent(method, path, None if body is None else json.dumps(body).encode(), "application/json")

    def _sent(self, method: str, path: str, data: bytes | None, content_type: str) -> HTTPResponse:
        headers = {"Accept": "application/json, text/plain", "Content-Type": content_type}
        if self.address.token:
            headers["Authorization"] = f"Bearer {self.address.token}"
        request = Request(self.address.url + path, data, headers, method=method)
        try:
            response: HTTPResponse = urlopen(request, timeout=ANSWER_SECONDS, context=self._context())
        except HTTPError as error:
            with error:
                text = error.read().decode("utf-8", "replace")
                raise self.refuse(error.code, text, _find_errors(text)) from None
        except (URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                why = reason.verify_message.rstrip(".")
                raise OperationError(
                    f"the certificate of {self.address.url} is not trusted ({why}): name a file of certificates to "
                    "trust with -D security.ssl.rest.certificate=FILE"
                ) from error
            raise OperationError(f"nothing answers at {self.address.url} ({reason}): {self.remedy}") from error
        return response

    def refuse(self, code: int, text: str, errors: Sequence[str]) -> OperationError:
        """Return the error for an answer with an HTTP status above 399, its text, and the errors in it."""
        return OperationError(refusal(code, text))

    def _context(self) -> ssl.SSLContext | None:
        if not self.address.url.startswith("https"):
            return None
        return ssl.create_default_context(cafile=self.address.certificate)


def _find_errors(text: str) -> list[str]:
    try:
        return [str(error) for error in json.loads(text)["errors"]]
    except (ValueError, KeyError, TypeError):
        return []


def refusal(code: int, text: str) -> str:
    """Return the message of an error response, in one line."""
    errors = _find_errors(text) or [text]
    message = next((first_line(error) for error in errors if error.strip()), f"the server answers {code}")
    if code in (401, 403):
        message += ". Set the token in PENSTOCK_REST_TOKEN, or in penstock.rest.token of config.yaml"
    return message


def first_line(text: str) -> str:
    """Return the line of a Python or Java stack trace that states the error."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return text
    is_python = lines[0].startswith("Traceback (most recent call last)")
    return lines[-1].strip() if is_python else lines[0].strip()


#: The default name of a session.
DEFAULT_NAME: Final = "default"
_NAME: Final = re.compile(r"\w[\w.-]{0,99}")


class KnownSession(msgspec.Struct, frozen=True):
    """A session.

    Attributes:
        name: its name on this host.
        address: the URL of its REST API, such as `http://127.0.0.1:8081`.
        token: the operator's token.
        process: its process id.
        began_ms: when it began (ms since the epoch).
        log: the file of its output; None if it has a terminal.
    """

    name: str
    address: str
    token: str
    process: int
    began_ms: int
    log: str | None = None


def directory() -> Path:
    """Return the directory of the session files."""
    return Path.home() / ".penstock" / "sessions"


def checked_name(name: str) -> str:
    """Check the name of a session and return it.

    Raises:
        WrongValueError: if the name is invalid.
    """
    if not _NAME.fullmatch(name):
        raise WrongValueError(f"a session's name has letters, digits, dots and hyphens, not {name[:100]!r}")
    return name


class Registration:
    """The registration of a session: reserves its name when created, and is published once the session is reachable.

    Raises:
        OperationError: if another session has the name.
    """

    def __init__(self, name: str) -> None:
        folder = directory()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._told = folder / f"{name}.json"
        # It stays after the session ends: removing it could remove one that the next session has locked.
        self._held = (folder / f"{name}.held").open("ab")
        if not _lock(self._held):
            self._held.close()
            known = _read(self._told)
            where = f" at {known.address}" if known is not None else ""
            raise OperationError(f"a session {name!r} runs{where}: stop it, or give this one a --name")
        self._told.unlink(missing_ok=True)

    def tell(self, session: KnownSession) -> None:
        """Publish the session, so that the commands find it."""
        partial = self._told.with_suffix(f".{os.getpid()}")
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(session))
        partial.rename(self._told)

    def end(self) -> None:
        """Release the name."""
        self._told.unlink(missing_ok=True)
        self._held.close()


def sessions() -> list[KnownSession]:
    """Return the live sessions, by name."""
    alive = []
    for path in sorted(directory().glob("*.json")):
        known = _read(path)
        if known is not None and is_held(known.name):
            alive.append(known)
    return alive


def is_held(name: str) -> bool:
    """Return whether the session of this name is alive."""
    try:
        with (directory() / f"{name}.held").open("ab") as file:
            return not _lock(file)
    except FileNotFoundError:
        return False


def find_session(url: str) -> KnownSession | None:
    """Return the session that serves a URL, treating this host's loopback names as equal."""
    with suppress(ValueError):
        target = urlsplit(url)
        for known in sessions():
            theirs = urlsplit(known.address)
            same_host = target.hostname == theirs.hostname or {target.hostname, theirs.hostname} <= {
                "localhost",
                "127.0.0.1",
                "::1",
            }
            if same_host and target.port == theirs.port and target.scheme == theirs.scheme:
                return known
    return None


def _lock(file: BinaryIO) -> bool:
    """Lock a file until it is closed or the process ends; return False if another process holds the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(path: Path) -> KnownSession | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=KnownSession)
    except (OSError, msgspec.MsgspecError):
        return None
