"""Where a dataset lies: a directory of the local disk or of any filesystem that pyarrow or fsspec open."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from pyarrow import fs as arrow_fs

from .. import streams
from ..errors import OutputError

TEMPORARY = ".tmp"
"""Ends the name of a file that is being written; such a file belongs to nobody once its writer is gone."""


def absolute(path: str | os.PathLike[str]) -> str:
    """The path as every process can open it; a URI stays as it is."""
    text = os.fsdecode(os.fspath(path))
    return text if streams.URI.match(text) or text == "-" else os.path.abspath(text)


class Place:
    """A directory that files are written to, read from and listed in, by names relative to it ('/' between parts).

    A file appears under its name when it is whole, or (object stores do it so) when it is closed.
    """

    def __init__(self, uri: str | os.PathLike[str]) -> None:
        self.uri = absolute(uri)
        if self.uri[:7].lower() == "file://":
            self.uri = arrow_fs.FileSystem.from_uri(self.uri)[1]
        self.local = not streams.URI.match(self.uri)
        if self.local:
            self.system, self.root = arrow_fs.LocalFileSystem(), self.uri
        else:
            self.system, self.root = streams.filesystem(self.uri)

    def path(self, name: str) -> str:
        """The path of a file within `system`."""
        return f"{self.root}/{name}" if name else self.root

    @property
    def shared(self) -> bool:
        """Whether other processes see the same files."""
        return not self.uri.startswith("memory:")

    # -- reading

    def files(self, folder: str, *, below: bool = True) -> list[tuple[str, int]]:
        """Name and size of every file in a folder, sorted; none if there is no such folder."""
        selector = arrow_fs.FileSelector(self.path(folder), allow_not_found=True, recursive=below)
        start = len(self.path("")) + 1
        infos = self.system.get_file_info(selector)
        return sorted((i.path[start:], i.size or 0) for i in infos if i.type == arrow_fs.FileType.File)

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None if it is not there."""
        try:
            if self.local:
                with open(self.path(name), "rb") as file:
                    return file.read()
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

        Two processes cannot both make it: by a hard link, or by the conditional write of the object store
        (through fsspec). Where the filesystem has neither, it is looked for first, which two can do at once.
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
        system, path = self._conditional(name)
        if system is not None:
            try:
                system.pipe_file(path, data, mode="create")
            except FileExistsError:
                return False
            return True
        if self.there([name]):
            return False
        self.put(name, data)
        return True

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

    def _conditional(self, name: str) -> tuple[Any, str]:
        """The fsspec filesystem that writes on condition, and the path in it; None where fsspec has none."""
        handler = getattr(self.system, "handler", None)
        if isinstance(handler, arrow_fs.FSSpecHandler):
            return handler.fs, self.path(name)
        try:
            import fsspec

            system, path = fsspec.core.url_to_fs(f"{self.uri.rstrip('/')}/{name}")
            return system, path
        except (ImportError, ValueError):
            return None, ""


def _sync(path: str) -> None:
    """A file, or what was linked into a folder, survives a power cut."""
    if os.name == "posix":
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
