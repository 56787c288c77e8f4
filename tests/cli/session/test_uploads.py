"""What is uploaded is checked before it is kept."""

from __future__ import annotations

import io
import stat
import zipfile
from pathlib import Path

import pytest

from penstock.base.errors import MissingPathError, WrongValueError
from penstock.cli.session import uploads
from penstock.cli.session.uploads import Uploads, checked, placed
from penstock.server.rest.calls.routing import RestError
from penstock.server.rest.handlers.programs import parse_form_file


def archive(*files: tuple[str, bytes], mode: int = stat.S_IFREG | 0o600) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in files:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            written.writestr(info, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def test_a_script_and_an_archive_are_placed_as_they_are(tmp_path: Path) -> None:
    placed(checked("job.py", b"print(1)"), tmp_path / "script")
    assert (tmp_path / "script" / "job.py").read_bytes() == b"print(1)"
    program = checked("C:\\jobs\\job.zip", archive(("__main__.py", b"import help"), ("help/__init__.py", b"")))
    assert (program.name, program.entries()) == ("job.zip", ("__main__",))
    placed(program, tmp_path / "archive")
    assert (tmp_path / "archive" / "help" / "__init__.py").exists()
    assert checked("modules.zip", archive(("help.py", b""))).entries() == ()


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("job.py", b"def (", "no Python program"),
        ("job.py", b"\0", "no Python program"),
        ("job.py", b"(" * 1_000, "no Python program"),
        ("job.jar", b"", "is a jar"),
        ("job.sh", b"", "a .py or .zip file"),
        ("..", b"", "a .py or .zip file"),
        (".py", b"", "a .py or .zip file"),
        ("a b.py", b"", "a .py or .zip file"),
        ("job.zip", b"PK\x05\x06", "no archive"),
        ("job.zip", archive(("../job.py", b"")), "outside of it"),
        ("job.zip", archive(("/job.py", b"")), "outside of it"),
        ("job.zip", archive(("..\\job.py", b"")), "outside of it"),
        ("job.zip", archive(("job.py", b"/etc/passwd"), mode=stat.S_IFLNK | 0o777), "a link"),
        ("job.zip", archive(("job.py", b"x" * 200))[:-80] + b"\0" * 80, "no archive"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_the_reason(name: str, data: bytes, reason: str) -> None:
    with pytest.raises(WrongValueError, match=reason):
        checked(name, data)


def test_an_archive_that_inflates_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "INFLATED_BYTES_FREE", 1_000)
    with pytest.raises(WrongValueError, match="far more bytes"):
        checked("job.zip", archive(("job.py", b" " * 100_000)))
    monkeypatch.setattr(uploads, "FILES_MAX", 2)
    with pytest.raises(WrongValueError, match="more than 2 files"):
        checked("job.zip", archive(*((f"{number}.py", b"") for number in range(3))))


def test_uploads_are_known_by_their_ids_alone(tmp_path: Path) -> None:
    kept = Uploads(tmp_path / "kept")
    uploaded = kept.add("job.py", b"")
    assert [one.upload_id for one in Uploads(tmp_path / "kept").all()] == [uploaded.upload_id]
    (tmp_path / "secret.py").write_bytes(b"")
    for other in ("secret.py", "../secret.py", f"../kept/{uploaded.upload_id}", ""):
        with pytest.raises(MissingPathError):
            kept.get(other)
    kept.remove(uploaded.upload_id)
    assert kept.all() == []


def form(*parts: bytes, boundary: bytes = b"b", end: bytes = b"--\r\n") -> bytes:
    return b"".join(b"--" + boundary + b"\r\n" + part + b"\r\n" for part in parts) + b"--" + boundary + end


def test_the_one_file_of_a_form_is_found() -> None:
    kind = 'multipart/form-data; boundary="b"'
    text = b'Content-Disposition: form-data; name="note"\r\n\r\nhello'
    file = b'Content-Disposition: form-data; name="jarfile"; filename="job.py"\r\n\r\nprint(1)\r\n--not b'
    assert parse_form_file(kind, form(text, file)) == ("job.py", b"print(1)\r\n--not b")
    for wrong_kind, body, reason in [
        (kind, form(text), "received 0"),
        (kind, form(file, file), "received 2"),
        (kind, form(file, end=b""), "not complete"),
        (kind, b"", "not complete"),
        (kind, form(*[text] * 200), "too many parts"),
        (kind, form(b"no headers"), "no headers"),
        (kind, form(b"x" * 20_000 + b"\r\n\r\n"), "too long"),
        ("multipart/form-data", form(file), "must be multipart"),
        ("application/json", b"{}", "must be multipart"),
    ]:
        with pytest.raises(RestError, match=reason):
            parse_form_file(wrong_kind, body)
