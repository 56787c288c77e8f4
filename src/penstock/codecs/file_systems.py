"""The file systems of fsspec, with what some of them leave undone (G8).

`url_to_fs` opens the file system of a URL. Four differences would lose data, or end a job that could go on:

| | fsspec | here |
| --- | --- | --- |
| errors of `gcsfs` and `adlfs` | classes of their own, which are no `OSError` | `OSError`, from the original |
| `webhdfs`: rename onto a file | does nothing, without an error | replaces the file, or raises `FileExistsError` |
| `webhdfs`: a data node answers with an error | its text becomes the file's content | `OSError` |
| `webhdfs`, `abfs`: a path as a URL | loses the host, or the account | keeps them |

Renames of HDFS are atomic, so `rename` publishes a file in one step. Object stores cannot rename.
"""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any, Final, cast

import fsspec
from fsspec.asyn import mirror_sync_methods
from fsspec.core import OpenFile

from penstock.base.errors import ConfigurationError

#: Methods of a file system that send requests.
_METHODS: Final = (
    *("cat_file", "copy", "exists", "find", "glob", "info", "isdir", "isfile", "ls", "makedirs", "mkdir", "mv"),
    *("pipe_file", "rm", "rm_file", "rmdir", "walk"),
)
#: Methods of an open file that send requests.
_METHODS_OF_FILES: Final = ("_fetch_range", "_initiate_upload", "_upload_chunk")
_AZURE_HOST: Final = ".dfs.core.windows.net"
#: The class of each protocol, and the package that it needs.
_CLASSES: Final = {
    **dict.fromkeys(("gs", "gcs"), ("GoogleFiles", "gcsfs")),
    **dict.fromkeys(("abfs", "abfss", "az"), ("AzureFiles", "adlfs")),
    "webhdfs": ("HadoopFiles", "requests"),
}


def url_to_fs(url: str, **options: Any) -> tuple[Any, str]:
    """Return the file system of a URL or local path, and the path in it.

    Args:
        url: a URL such as `gs://bucket/path`, or a path.
        options: arguments of the file system, as of fsspec.

    Raises:
        ConfigurationError: if the package of the protocol is missing; says how to install it.
    """
    known = _find_class(url)
    if known is None:
        fs, path = fsspec.core.url_to_fs(url, **options)
        return fs, path
    name, package = known
    try:
        kind = _load_class(name)
    except ImportError as error:
        raise ConfigurationError(
            f"{url.partition('://')[0]}:// needs {package}: pip install {package}, on the client and on every worker"
        ) from error
    return kind(**{**kind._get_kwargs_from_urls(url), **options}), kind._strip_protocol(url)


def open_url(url: str, mode: str = "rb", compression: str | None = None, encoding: str | None = None) -> OpenFile:
    """Return what opens a file, as `fsspec.open` does."""
    if _find_class(url) is None:
        return cast(OpenFile, fsspec.open(url, mode, compression=compression, encoding=encoding))
    fs, path = url_to_fs(url)
    return OpenFile(fs, path, mode, compression, encoding)


def _find_class(url: str) -> tuple[str, str] | None:
    """Return the class of this module for a URL, and its package; None where fsspec's own will do."""
    protocol, separator, _ = url.partition("://")
    return _CLASSES.get(protocol) if separator and "::" not in url else None


def rename(fs: Any, source: str, target: str, replaces: bool = True) -> None:
    """Give a file of a file system with directories another name, atomically in HDFS.

    Raises:
        FileExistsError: if the target exists, and `replaces` is not set.
    """
    if getattr(fs, "renames_atomically", False):
        fs.mv(source, target, replaces=replaces)
        return
    if not replaces and fs.exists(target):
        raise FileExistsError(errno.EEXIST, "File exists", target)
    fs.mv(source, target)


# --- errors ----------------------------------------------------------------------------------------------------------


def _to_os_error(error: BaseException) -> OSError:
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    text = f"{type(error).__name__}: {error}"
    if status == 404:
        return FileNotFoundError(errno.ENOENT, text)
    if status in (401, 403):
        return PermissionError(errno.EACCES, text)
    # The range begins past the end of the object.
    return OSError(errno.EINVAL if status == 416 else errno.EIO, text)


def _translated(call: Callable[..., Any], classes: tuple[type[BaseException], ...]) -> Callable[..., Any]:
    @functools.wraps(call)
    def translate(*arguments: Any, **settings: Any) -> Any:
        try:
            return call(*arguments, **settings)
        except classes as error:
            if isinstance(error, OSError):
                raise
            raise _to_os_error(error) from error

    return translate


class _Translating:
    """Raises `OSError` for the errors of a library, by file systems and by the files that they open."""

    errors: tuple[type[BaseException], ...]

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        mirror_sync_methods(self)  # the metaclass does it after this, and would overwrite what follows
        for name in _METHODS:
            setattr(self, name, _translated(getattr(self, name), self.errors))

    def open(self, *arguments: Any, **settings: Any) -> Any:
        """See fsspec."""
        file = _translated(super().open, self.errors)(*arguments, **settings)  # type: ignore[misc]
        for name in _METHODS_OF_FILES:
            if hasattr(file, name):
                setattr(file, name, _translated(getattr(file, name), self.errors))
        return file


class _TranslatingAzure(_Translating):
    def unstrip_protocol(self, name: str) -> str:
        """Return the URL of a path, with the account that opened it."""
        account = getattr(self, "storage_options", {}).get("account_name")
        if account is None or "://" in name:
            return cast(str, super().unstrip_protocol(name))  # type: ignore[misc]
        container, _, path = name.lstrip("/").partition("/")
        return f"abfs://{container}@{account}{_AZURE_HOST}/{path}"


#: The classes of object stores: what each adds, its package and class, and the classes of its errors. `adlfs` makes a
#: RuntimeError of the error of an upload.
_STORES: Final = {
    "GoogleFiles": (
        _Translating,
        "gcsfs:GCSFileSystem",
        ("gcsfs.retry:HttpError", "google.auth.exceptions:GoogleAuthError"),
    ),
    "AzureFiles": (
        _TranslatingAzure,
        "adlfs:AzureBlobFileSystem",
        ("azure.core.exceptions:AzureError", "builtins:RuntimeError"),
    ),
}


def _load_class(name: str) -> Any:
    if name not in _STORES:
        return resolve_name("penstock.codecs.hadoop_files:HadoopFiles")
    if name not in globals():
        addition, path, errors = _STORES[name]
        base = resolve_name(path)
        settings = {"errors": tuple(map(resolve_name, errors)), "__module__": __name__, "__doc__": base.__doc__}
        globals()[name] = type(name, (addition, base), settings)
    return globals()[name]


def __getattr__(name: str) -> Any:
    """Make the class of an object store when a pickled file system needs it."""
    if name in _STORES:
        return _load_class(name)
    raise AttributeError(f"module {__name__} has no attribute {name!r}")
