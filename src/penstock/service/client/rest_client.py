"""Requests to Flink's REST API, with its errors in one line."""

from __future__ import annotations

import json
import secrets
import ssl
import time
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from penstock.base.errors import OperationError
from penstock.service.client.address import Address

#: The timeout (s) of an answer. Longer operations are triggered and polled.
ANSWER_SECONDS: Final = 60.0
#: The shortest and the longest pause (s) between polls of a trigger.
PAUSE_SECONDS: Final = (0.05, 1.0)


class RestClient:
    """A client of one server."""

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
                raise OperationError(refusal(error.code, error.read().decode("utf-8", "replace"))) from None
        except (URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                why = reason.verify_message.rstrip(".")
                raise OperationError(
                    f"the certificate of {self.address.url} is not trusted ({why}): name a file of certificates to "
                    "trust with -D security.ssl.rest.certificate=FILE"
                ) from error
            raise OperationError(
                f"nothing answers at {self.address.url} ({reason}): start a job with penstock run, or name its address "
                "with -m host:port"
            ) from error
        return response

    def _context(self) -> ssl.SSLContext | None:
        if not self.address.url.startswith("https"):
            return None
        return ssl.create_default_context(cafile=self.address.certificate)


def refusal(code: int, text: str) -> str:
    """Return the message of an error response, in one line."""
    try:
        errors = [str(error) for error in json.loads(text)["errors"]]
    except (ValueError, KeyError, TypeError):
        errors = [text]
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
