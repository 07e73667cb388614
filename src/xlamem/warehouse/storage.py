"""Where a dataset lies: a directory of the local disk or of any filesystem that pyarrow or fsspec open."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from pyarrow import fs as arrow_fs

from ..errors import OutputError, UsageError, XlaMemError, utf8
from ..input import filesystems

EXCLUSIVE = {"s3fs": "s3", "gcsfs": "gcs", "adlfs": "azure"}
"""Libraries whose ``pipe_file(mode="create")`` is one conditional request, each with the extra that installs it.
That of any other filesystem of fsspec (but memory) looks first and writes then, which two can do at once."""

_SCHEMES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs",
}  # fmt: skip
_MEMORY = Lock()

TEMPORARY = ".tmp"
"""Ends the name of a file that is being written; such a file belongs to nobody once its writer is gone."""


def absolute(path: str | os.PathLike[str]) -> str:
    """The path as every process can open it; a URI stays as it is."""
    text = os.fsdecode(os.fspath(path))
    return text if filesystems.URI.match(text) or text == "-" else os.path.abspath(text)


class Place:
    """A directory that files are written to, read from and listed in, by names relative to it ('/' between parts).

    A file appears under its name when it is whole, or (object stores do it so) when it is closed.
    """

    def __init__(self, uri: str | os.PathLike[str], *, single_writer: bool = False) -> None:
        """With `single_writer` there is no other writer at the same time, so that `create` may look first."""
        self.uri, self.single_writer = absolute(uri), single_writer
        if self.uri[:7].lower() == "file://":
            self.uri = arrow_fs.FileSystem.from_uri(self.uri)[1]
        if self.uri != utf8(self.uri):  # the ledger and every reader name files in UTF-8
            raise UsageError(f"the path of a dataset must be UTF-8: {utf8(self.uri)}")
        self.local = not filesystems.URI.match(self.uri)
        if self.local:
            self.system, self.root = arrow_fs.LocalFileSystem(), self.uri
        else:
            self.system, self.root = filesystems.filesystem(self.uri)

    def path(self, name: str) -> str:
        """The path of a file within `system`."""
        return f"{self.root}/{name}" if name else self.root

    def uri_of(self, name: str) -> str:
        """The path or URI under which everybody else finds a file."""
        uri, mark, query = (self.uri, "", "") if self.local else self.uri.partition("?")
        return f"{uri.rstrip('/')}/{name}{mark}{query}"

    @property
    def _fsspec(self) -> Any:
        """fsspec's filesystem, if the place is opened through it."""
        handler = getattr(self.system, "handler", None)
        return handler.fs if isinstance(handler, arrow_fs.FSSpecHandler) else None

    @property
    def shared(self) -> bool:
        """Whether other processes see the same files."""
        return not self.uri.startswith("memory:")

    # -- reading

    def files(self, folder: str, *, below: bool = True) -> list[tuple[str, int]]:
        """Name and size of every file in a folder, sorted; none if there is no such folder."""
        selector = arrow_fs.FileSelector(self.path(folder), allow_not_found=True, recursive=below)
        start = len(self.path("")) + 1
        if self._fsspec:
            self._fsspec.invalidate_cache()  # other processes write there too
        infos = self.system.get_file_info(selector)
        return sorted((i.path[start:], i.size or 0) for i in infos if i.type == arrow_fs.FileType.File)

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None if it is not there."""
        try:
            if self.local:
                with open(self.path(name), "rb") as file:
                    return file.read()
            if self._fsspec:  # its listings may be kept from before the file was made
                return bytes(self._fsspec.cat_file(self.path(name)))
            with self.system.open_input_stream(self.path(name)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def there(self, names: Iterable[str]) -> bool:
        """Whether all of these files are there."""
        infos = self.system.get_file_info([self.path(n) for n in names])
        return all(i.type == arrow_fs.FileType.File for i in infos)

    # -- writing

    @contextmanager
    def writing(self) -> Iterator[None]:
        """What goes wrong with the disk becomes an OutputError."""
        try:
            yield
        except OSError as error:
            where = getattr(error, "filename", None) or self.uri
            raise OutputError(f"cannot write to {where}: {error.strerror or error}") from error

    @contextmanager
    def output(self, name: str, *, replace: bool = False) -> Iterator[Any]:
        """A stream to a new file. One that is there already stays, unless `replace`."""
        path = self.path(name)
        if not self.local:
            try:
                opened = self.system.open_output_stream(path)
            except FileNotFoundError:  # not an object store: folders must be made
                self.system.create_dir(path.rpartition("/")[0], recursive=True)
                opened = self.system.open_output_stream(path)
            with opened as stream:
                yield stream
            return
        folder, _, base = path.rpartition("/")
        os.makedirs(folder, exist_ok=True)
        temporary = f"{folder}/.{base}.{secrets.token_hex(4)}{TEMPORARY}"
        try:
            with open(temporary, "wb") as file:
                yield file
            if replace:
                os.replace(temporary, path)
            else:
                with suppress(FileExistsError):
                    os.link(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)

    def create(self, name: str, data: bytes) -> bool:
        """A small file, whole or not at all, only if there is none of that name; whether it was made.

        Two processes cannot both make it: by a hard link, or by the conditional write of the object store.
        UsageError where there is neither, unless this is the single writer.
        """
        if self.local:
            path = self.path(name)
            folder, _, base = path.rpartition("/")
            os.makedirs(folder, exist_ok=True)
            temporary = f"{folder}/.{base}.{secrets.token_hex(4)}{TEMPORARY}"
            try:
                with open(temporary, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(temporary, path)
            except FileExistsError:
                return False
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)
            _sync(folder)
            return True
        if self.single_writer:
            if self.there([name]):
                return False
            self.put(name, data)
            return True
        try:
            with _MEMORY if not self.shared else nullcontext():
                self._exclusive.pipe_file(self.path(name), data, mode="create")
        except FileExistsError:
            return self.read(name) == data  # made by this call, if the first answer was lost and it was sent again
        except (OSError, XlaMemError) as error:
            if "ConditionalRequestConflict" in str(error.__cause__):  # S3: another one is being made just now
                return False
            raise
        except Exception as error:  # the libraries behind URIs have exceptions of their own
            raise OSError(f"{type(error).__name__}: {error}") from error
        return True

    def check_exclusive(self) -> None:
        """UsageError unless `create` works as it says: where it is known not to, and where a server ignores it."""
        if self.local or self.single_writer:
            return
        name, data = f"_ledger/.{secrets.token_hex(4)}{TEMPORARY}", secrets.token_bytes(16)
        ignored = not self.create(name, data) or self.create(name, data[::-1])
        self.delete([name])
        if ignored:
            raise UsageError(
                f"{self.uri} ignores conditional writes (or s3fs, gcsfs or adlfs is too old for them): two converters "
                f"there could lose each other's dumps{_ALONE}"
            )

    def settle(self, names: Iterable[str]) -> None:
        """Wait until files written before would survive a power cut."""
        paths = [self.path(n) for n in names] if self.local and os.name == "posix" else []
        if paths:
            paths += {p.rpartition("/")[0] for p in paths}
            with ThreadPoolExecutor(min(len(paths), 16)) as pool:  # together they are written in one go
                list(pool.map(_sync, paths))

    def put(self, name: str, data: bytes) -> None:
        """A small file, whatever was there."""
        with self.output(name, replace=True) as stream:
            stream.write(data)

    def delete(self, names: Iterable[str]) -> None:
        """Files that may be gone already; folders left empty on the local disk go too."""
        folders = set()
        for name in names:
            with suppress(FileNotFoundError):
                self.system.delete_file(self.path(name))
            folders.add(name.rpartition("/")[0])
        if self.local:
            for folder in sorted(folders, key=len, reverse=True):
                while folder:
                    try:
                        os.rmdir(self.path(folder))
                    except OSError:
                        break
                    folder = folder.rpartition("/")[0]

    @cached_property
    def _exclusive(self) -> Any:
        """The fsspec filesystem that makes a file only if there is none (pyarrow's have no such call)."""
        scheme = urlsplit(self.uri).scheme.lower()
        library = _SCHEMES.get(scheme)
        system = self._fsspec
        if not self.shared:
            return system
        if system is None and library:
            try:
                import fsspec

                system, _ = fsspec.core.url_to_fs(self.uri.partition("?")[0], **_options(self.uri))
            except (ImportError, ValueError):
                raise UsageError(
                    f"{scheme}:// needs {library} so that of two converters at once only one can commit: "
                    f"pip install 'xlamem[{EXCLUSIVE[library]}]'{_ALONE}"
                ) from None
        if type(system).__module__.partition(".")[0] not in EXCLUSIVE:
            raise UsageError(
                f"{scheme}:// has no conditional write: two converters there could lose each other's dumps{_ALONE}"
            )
        return system


_ALONE = "; if only one converter writes there at a time, --single-writer (single_writer=True) does without"


def _options(uri: str) -> dict[str, Any]:
    """What the query of pyarrow's S3 URIs says, in the words of s3fs."""
    parts = urlsplit(uri)
    said = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    found: dict[str, Any] = {}
    if "endpoint_override" in said:
        endpoint = said["endpoint_override"]
        found["endpoint_url"] = endpoint if "://" in endpoint else f"{said.get('scheme', 'https')}://{endpoint}"
    if "region" in said:
        found["client_kwargs"] = {"region_name": said["region"]}
    if parts.username:
        found |= {"key": unquote(parts.username), "secret": unquote(parts.password or "")}
    return found


def _sync(path: str) -> None:
    """A file, or what was linked into a folder, survives a power cut."""
    if os.name == "posix":
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
