"""Parses the file in an uploaded form (multipart/form-data) from a body in memory."""

from __future__ import annotations

from email.message import Message
from email.utils import collapse_rfc2231_value
from typing import Final

from penstock.operations.rest.calls.errors import bad_request

#: The maximum number of parts in a form, and of header bytes in a part.
PARTS_MAX: Final = 100
HEADERS_BYTES_MAX: Final = 16 << 10


def parse_form_file(content_type: str, body: bytes) -> tuple[str, bytes]:
    """Return the name and the content of the only file in a form.

    Raises:
        RestError: 400 if the body is not a form, or has no file or several.
    """
    boundary = _parameters(content_type, "multipart/form-data").get_param("boundary")
    if not isinstance(boundary, str) or not boundary:
        raise bad_request("The body must be multipart/form-data with one file, such as curl -F jarfile=@job.py sends.")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1", "replace"), PARTS_MAX + 1)
    if len(parts) > PARTS_MAX or not parts[-1].startswith(b"--"):
        raise bad_request("The form is not complete, or has too many parts.")
    files = []
    for part in parts[1:-1]:
        head, separator, content = part.partition(b"\r\n\r\n")
        if not separator or len(head) > HEADERS_BYTES_MAX:
            raise bad_request("A part of the form has no headers, or too long ones.")
        name = _file_name(head)
        if name is not None:
            files.append((name, content))
    if len(files) != 1:
        raise bad_request(f"Exactly 1 file must be sent, received {len(files)}.")
    return files[0]


def _file_name(head: bytes) -> str | None:
    for line in head.decode("utf-8", "replace").split("\r\n"):
        key, _, value = line.partition(":")
        if key.strip().lower() == "content-disposition":
            name = _parameters(value.strip(), "form-data").get_param("filename")
            return None if name is None else collapse_rfc2231_value(name)
    return None


def _parameters(value: str, kind: str) -> Message:
    """Parse a header with parameters, if its value is of this kind."""
    message = Message()
    if value.partition(";")[0].strip().lower() == kind:
        message["Content-Type"] = value
    return message
