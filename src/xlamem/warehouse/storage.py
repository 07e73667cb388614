"""The storage of a dataset: a directory on the local disk or any filesystem that pyarrow or fsspec can open."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
from pyarrow import fs as arrow_fs

from ..errors import DumpError, OutputError, UsageError, XlaMemError, output_error, utf8
from ..input import filesystems
from ..input.access import URI

if TYPE_CHECKING:
    import pyarrow.parquet as pq

CONDITIONAL_CREATE = {"s3fs": "s3", "gcsfs": "gcs", "adlfs": "azure"}
"""Libraries that implement ``pipe_file(mode="create")`` as one conditional request, and the extras that install them.

Other fsspec filesystems, except memory, check first and then write, so that two writers can both succeed.
"""

_LIBRARIES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs",
}  # fmt: skip
_MEMORY_LOCK = Lock()

GONE = "a committed file; it is gone (if it was replaced, open the dataset again)"
"""What is expected of a file of the dataset that does not exist."""

TEMPORARY = ".tmp"
"""Suffix of files that are being written. Files left by dead writers may be deleted."""


def absolute(path: str | os.PathLike[str]) -> str:
    """Return an absolute path; URIs are returned unchanged. Raises UsageError if it is empty."""
    text = os.fsdecode(os.fspath(path))
    if not text:  # an unset variable in a script, not the current directory
        raise UsageError("a path must not be empty")
    return text if URI.match(text) or text == "-" else os.path.abspath(text)


class Storage:
    """A directory, with methods to read, write and list its files. Names are relative to it and separated by '/'.

    Small files appear when they are complete. Large ones are staged and published, which on other storage than the
    local disk is the same: they appear when they are closed.
    """

    def __init__(self, uri: str | os.PathLike[str], *, single_writer: bool = False) -> None:
        """Open a directory or URI. With `single_writer`, the caller guarantees that nothing else writes to it."""
        self.uri, self.single_writer = absolute(uri), single_writer
        if self.uri[:7].lower() == "file://":
            if "?" in self.uri:  # it begins a query, of which a file has none
                raise UsageError(f"{utf8(self.uri)} is not the URI of a directory: write %3F for ?")
            quoted = self.uri[7:].replace("#", "%23")
            try:
                self.uri = arrow_fs.FileSystem.from_uri(f"file://{quoted}")[1]  # which knows lower case only
            except pa.ArrowInvalid as error:
                text = str(error).partition("\n")[0]
                raise UsageError(f"{utf8(self.uri)} is not the URI of a directory: {text}") from error
        if self.uri != utf8(self.uri):  # the ledger and every reader name files in UTF-8
            raise UsageError(f"the path of a dataset must be UTF-8: {utf8(self.uri)}")
        self.local = not URI.match(self.uri)
        if self.local:
            self.system, self.root = arrow_fs.LocalFileSystem(), self.uri
        else:
            self.system, self.root = filesystems.filesystem(self.uri)

    def path(self, name: str) -> str:
        """Return the path of a file within `system`."""
        return f"{self.root}/{name}" if name else self.root

    def uri_of(self, name: str) -> str:
        """Return the path or URI of a file, for use by other tools."""
        uri, mark, query = (self.uri, "", "") if self.local else self.uri.partition("?")
        return f"{uri.rstrip('/')}/{name}{mark}{query}"

    @property
    def _fsspec(self) -> Any:
        """The fsspec filesystem behind `system`, if any."""
        handler = getattr(self.system, "handler", None)
        return handler.fs if isinstance(handler, arrow_fs.FSSpecHandler) else None

    @property
    def shared(self) -> bool:
        """Whether other processes see the same files: False for memory://."""
        return not self.uri.startswith("memory:")

    # -- reading

    def files(self, folder: str, *, recursive: bool = True) -> list[tuple[str, int]]:
        """Return the names and sizes of all files in a folder, sorted. A missing folder counts as empty."""
        selector = arrow_fs.FileSelector(self.path(folder), allow_not_found=True, recursive=recursive)
        start = len(self.path("")) + 1
        if self._fsspec:
            self._fsspec.invalidate_cache()  # other processes write to it too
        infos = self.system.get_file_info(selector)
        return sorted((i.path[start:], i.size or 0) for i in infos if i.type == arrow_fs.FileType.File)

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if it does not exist."""
        try:
            if self.local:
                with open(self.path(name), "rb") as file:
                    return file.read()
            if self._fsspec:  # open() would consult cached listings
                return bytes(self._fsspec.cat_file(self.path(name)))
            with self.system.open_input_stream(self.path(name)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def exist(self, names: Iterable[str]) -> bool:
        """Return whether all of these files exist."""
        if self._fsspec:
            self._fsspec.invalidate_cache()  # other processes delete files too
        infos = self.system.get_file_info([self.path(n) for n in names])
        return all(i.type == arrow_fs.FileType.File for i in infos)

    # -- writing

    @contextmanager
    def output_errors(self) -> Iterator[None]:
        """Raise OutputError instead of OSError, and of a DumpError about a file of the dataset."""
        try:
            yield
        except DumpError as error:
            raise OutputError(str(error)) from error
        except OSError as error:
            path = getattr(error, "filename", None) or self.uri
            raise output_error(path, error) from error

    @contextmanager
    def damage_errors(self, name: str, expected: str) -> Iterator[None]:
        """Raise DumpError instead of what a damaged JSON file raises."""
        try:
            yield
        except (ValueError, KeyError, TypeError) as error:
            raise DumpError(self.uri_of(name), f"{expected} ({type(error).__name__}: {error})") from error

    @contextmanager
    def parquet_errors(self, name: str) -> Iterator[None]:
        """Raise DumpError instead of what a damaged or missing Parquet file raises."""
        try:
            yield
        except (MemoryError, pa.ArrowCancelled):
            raise
        except FileNotFoundError as error:
            raise DumpError(self.uri_of(name), GONE) from error
        except (OSError, pa.ArrowException) as error:
            raise DumpError(self.uri_of(name), f"a Parquet file ({str(error).partition(chr(10))[0]})") from error

    @contextmanager
    def open_parquet(self, name: str, **options: Any) -> Iterator[pq.ParquetFile]:
        """Open a Parquet file of the dataset. Raises DumpError if it is damaged or gone."""
        import pyarrow.parquet as pq

        with (
            self.parquet_errors(name),
            pq.ParquetFile(self.path(name), filesystem=self.system, **options) as parquet,
        ):
            yield parquet

    def row_groups(self, name: str, **options: Any) -> Iterator[pa.Table]:
        """Yield the row groups of a Parquet file of the dataset. Raises DumpError if it is damaged or gone."""
        with self.open_parquet(name, **options) as parquet:
            for i in range(parquet.num_row_groups):
                yield parquet.read_row_group(i)

    def staged(self, name: str) -> str:
        """Return a new name for a file that is written now and published later; `name` if it cannot be renamed."""
        return _temporary_name(name) if self.local else name

    @contextmanager
    def open_staged(self, name: str) -> Iterator[Any]:
        """Open a stream to a file with a staged name. On the local disk, it is deleted if an exception is raised."""
        path = self.path(name)
        if not self.local:
            with self._open_remote(path) as stream:
                yield stream
            return
        os.makedirs(path.rpartition("/")[0], exist_ok=True)
        with _deleted_on_error(path), open(path, "wb") as file:
            yield file

    def publish(self, staged: Iterable[str]) -> dict[str, str]:
        """Give staged files their names, so that a glob finds them; return these by staged name, which remains too.

        If a name is taken, the file gets another one: it never replaces a file that a reader has found.
        """
        names = {name: self._publish(name) for name in staged if self.local and name.endswith(TEMPORARY)}
        _sync_all({self.path(name).rpartition("/")[0] for name in names.values()})
        return names

    def _publish(self, staged: str) -> str:
        folder, _, temporary = staged.rpartition("/")
        name, token, _ = temporary[1:].rsplit(".", 2)
        stem, dot, extension = name.rpartition(".")
        for published in (f"{folder}/{name}", f"{folder}/{stem}-{token}{dot}{extension}"):
            with suppress(FileExistsError):
                os.link(self.path(staged), self.path(published))
                return published
        raise FileExistsError(errno.EEXIST, "file exists", self.path(published))

    def _open_remote(self, path: str) -> Any:
        try:
            return self.system.open_output_stream(path)
        except FileNotFoundError:  # unlike an object store, this filesystem requires the folder
            self.system.create_dir(path.rpartition("/")[0], recursive=True)
            return self.system.open_output_stream(path)

    def create(self, name: str, data: bytes) -> bool:
        """Write a small file atomically unless the name exists; return whether it was written.

        Of two concurrent calls, only one returns True. This is ensured by a hard link on the local disk and by a
        conditional write on object stores. With `single_writer`, it checks first and then writes. Raises UsageError if
        the storage has no conditional writes.
        """
        if self.local:
            return self._create_local(self.path(name), data)
        if not self.single_writer:
            return self._create_conditionally(name, data)
        if self.exist([name]):
            return False
        self.write(name, data)
        return True

    def _create_local(self, path: str, data: bytes) -> bool:
        folder = path.rpartition("/")[0]
        os.makedirs(folder, exist_ok=True)
        with _temporary(path) as temporary:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
        _sync(folder)
        return True

    def _create_conditionally(self, name: str, data: bytes) -> bool:
        try:
            with _MEMORY_LOCK if not self.shared else nullcontext():
                self._conditional_filesystem.pipe_file(self.path(name), data, mode="create")
        except FileExistsError:
            return self.read(name) == data  # a retried request fails if the first one succeeded
        except (OSError, XlaMemError) as error:
            if "ConditionalRequestConflict" in str(error.__cause__):  # S3: a concurrent write is in progress
                return False
            raise
        except Exception as error:  # these libraries raise exceptions of their own
            raise OSError(f"{type(error).__name__}: {error}") from error
        return True

    def check_conditional_create(self) -> None:
        """Raise UsageError if `create` could succeed for two writers, or if the server ignores the condition."""
        if self.local or self.single_writer:
            return
        name, data = f"_ledger/.{secrets.token_hex(4)}{TEMPORARY}", secrets.token_bytes(16)
        ignored = not self.create(name, data) or self.create(name, data[::-1])
        self.delete([name])
        if ignored:
            raise UsageError(
                f"{self.uri} ignores conditional writes (or s3fs, gcsfs or adlfs is too old for them): concurrent "
                f"converters could lose each other's dumps{_SINGLE_WRITER}"
            )

    def sync(self, names: Iterable[str]) -> None:
        """Flush these files to the disk, so that they survive a power failure."""
        if self.local:
            _sync_all({self.path(name) for name in names})

    def write(self, name: str, data: bytes) -> None:
        """Write a small file, replacing any existing one."""
        path = self.path(name)
        if not self.local:
            with self._open_remote(path) as stream:
                stream.write(data)
            return
        os.makedirs(path.rpartition("/")[0], exist_ok=True)
        with _temporary(path) as temporary:
            with open(temporary, "wb") as file:
                file.write(data)
            os.replace(temporary, path)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files and, on the local disk, folders that become empty. Missing files are ignored."""
        folders = set()
        for name in names:
            with suppress(FileNotFoundError):
                self.system.delete_file(self.path(name))
            folders.add(name.rpartition("/")[0])
        if self.local:
            for folder in sorted(folders, key=len, reverse=True):
                self._delete_empty(folder)

    def _delete_empty(self, folder: str) -> None:
        """Delete a folder and its parents, up to the first one that is not empty."""
        with suppress(OSError):
            while folder:
                os.rmdir(self.path(folder))
                folder = folder.rpartition("/")[0]

    @cached_property
    def _conditional_filesystem(self) -> Any:
        """The fsspec filesystem for conditional writes, which pyarrow's filesystems do not support."""
        scheme = urlsplit(self.uri).scheme.lower()
        system = self._fsspec
        if not self.shared:
            return system
        if system is None and scheme in _LIBRARIES:
            system = self._open_fsspec(scheme)
        if type(system).__module__.partition(".")[0] not in CONDITIONAL_CREATE:
            raise UsageError(
                f"{scheme}:// has no conditional writes: concurrent converters could lose each other's "
                f"dumps{_SINGLE_WRITER}"
            )
        return system

    def _open_fsspec(self, scheme: str) -> Any:
        library = _LIBRARIES[scheme]
        try:
            return open_fsspec(self.uri)
        except (ImportError, ValueError):
            raise UsageError(
                f"{scheme}:// needs {library} for conditional writes, without which concurrent converters could lose "
                f"each other's dumps: pip install 'xlamem[{CONDITIONAL_CREATE[library]}]'{_SINGLE_WRITER}"
            ) from None


def open_output(uri: str | os.PathLike[str], *, single_writer: bool = False) -> Storage:
    """Open a directory or URI to write to it. Raises OutputError if it cannot be reached."""
    try:
        return Storage(uri, single_writer=single_writer)
    except DumpError as error:
        raise OutputError(str(error)) from error


def open_fsspec(uri: str) -> Any:
    """Return fsspec's filesystem of a URI, also of those that pyarrow could open. Raises ImportError or ValueError."""
    import fsspec

    return fsspec.core.url_to_fs(uri.partition("?")[0], **_s3fs_options(uri))[0]


_SINGLE_WRITER = "; if there is only one converter at a time, use --single-writer (single_writer=True)"


def s3_endpoint(uri: str) -> tuple[str | None, str | None]:
    """Return the endpoint and the region in the query of an S3 URI, as pyarrow defines it."""
    query = {key: values[-1] for key, values in parse_qs(urlsplit(uri, allow_fragments=False).query).items()}
    endpoint = query.get("endpoint_override")
    if endpoint and "://" not in endpoint:
        endpoint = f"{query.get('scheme', 'https')}://{endpoint}"
    return endpoint, query.get("region")


def _s3fs_options(uri: str) -> dict[str, Any]:
    """Convert an S3 URI, as pyarrow defines it, to options of s3fs."""
    url, (endpoint, region) = urlsplit(uri), s3_endpoint(uri)
    options: dict[str, Any] = {}
    if endpoint:
        options["endpoint_url"] = endpoint
    if region:
        options["client_kwargs"] = {"region_name": region}
    if url.username:
        options |= {"key": unquote(url.username), "secret": unquote(url.password or "")}
    return options


@contextmanager
def _temporary(path: str) -> Iterator[str]:
    """Yield the path of a temporary file next to `path`, and delete the file afterwards."""
    temporary = _temporary_name(path)
    try:
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _temporary_name(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.{secrets.token_hex(4)}{TEMPORARY}"


@contextmanager
def _deleted_on_error(path: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(path)
        raise


def _sync_all(paths: set[str]) -> None:
    """Flush files and folders to the disk. Concurrent calls share flushes of the disk."""
    if paths:
        with ThreadPoolExecutor(min(len(paths), 16)) as threads:
            list(threads.map(_sync, paths))


def _sync(path: str) -> None:
    """Flush a file or a folder to the disk."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
