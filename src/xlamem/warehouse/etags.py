"""The ETags of files on object stores, which change with the content."""

from __future__ import annotations

from contextlib import suppress

from ..input.filesystems import filesystem
from .storage import open_fsspec


class ETags:
    """Looks up ETags with one listing per folder."""

    def __init__(self) -> None:
        self._folders: dict[tuple[str, str], dict[str, str]] = {}
        """ETags by name, for each folder and query of URIs."""

    def find(self, uri: str) -> str | None:
        """Return the ETag of a file; None if its filesystem has none, or if it cannot be listed."""
        bare, _, query = uri.partition("?")
        folder = bare.rpartition("/")[0], query
        with suppress(Exception):  # libraries raise exceptions of their own; the file is then read
            parent, _, name = filesystem(uri)[1].rpartition("/")
            if folder not in self._folders:
                self._folders[folder] = {}  # not listed again if that fails
                self._folders[folder] = _etags_in(uri, parent)
            return self._folders[folder].get(name)
        return None


def _etags_in(uri: str, folder: str) -> dict[str, str]:
    """Return the ETags of the files in a folder, by name. `uri` is that of one of them."""
    system = open_fsspec(uri)
    system.invalidate_cache()  # other processes write files too
    infos = ((info["name"].rpartition("/")[2], info) for info in system.ls(folder, detail=True))
    return {name: str(info[key]) for name, info in infos for key in ("ETag", "etag") if info.get(key)}
