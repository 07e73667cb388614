"""Filesystems of URIs, listing of remote directories, and glob patterns for URIs.

`pyarrow.fs` is slow to import, so this module is imported for the first URI.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
from pyarrow import fs as arrow_fs

from ..errors import UsageError
from .access import WILDCARD, system_errors

_GLOB_TOKEN = re.compile(r"(\*\*/|\*\*|\*|\[!?\]?[^]]*\])")
_GLOB_REGEX = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
_GOOGLE = re.compile(r"(?:gs|gcs)://(?!.*[?&]retry_limit_seconds=)")
_RETRY_SECONDS = 30
"""How long Google Cloud Storage is tried again, unless the URI has a limit; its library takes 15 minutes."""


def filesystem(uri: str) -> tuple[arrow_fs.FileSystem, str]:
    """Return the filesystem of a URI, preferably pyarrow's rather than fsspec's, and the path in it."""
    parts = urlsplit(uri, allow_fragments=False)  # "#" is a character of a name
    if root := _arrow_root(uri):
        system, path = root
        return system, (path.rstrip("/") + unquote(parts.path)).rstrip("/") or "/"
    try:
        import fsspec
    except ImportError as e:
        raise UsageError(f"{parts.scheme}:// is unknown to pyarrow and needs fsspec: pip install 'xlamem[uri]'") from e
    with system_errors(uri, "a server that answers"):
        try:
            system, path = fsspec.core.url_to_fs(uri)
        except (ImportError, ValueError) as error:
            raise UsageError(f"cannot open {uri}: {error}") from error
    return arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(system)), path.rstrip("/")


def files_below(base: str, system: arrow_fs.FileSystem, root: str) -> Iterator[str]:
    """Yield the URI of each file below `base`, whose path in the filesystem is `root`."""
    uri, mark, query = base.partition("?")
    slash = "" if uri.endswith("/") else "/"
    quoted = _arrow_root(base) is not None
    for info in sorted(system.get_file_info(arrow_fs.FileSelector(root, recursive=True)), key=lambda i: i.path):
        if info.type == arrow_fs.FileType.File:
            relative = info.path.lstrip("/").removeprefix(root.strip("/")).lstrip("/")
            yield f"{uri}{slash}{quote(relative) if quoted else relative}{mark}{query}"


def decoder(uri: str) -> Callable[[str], str]:
    """Return the function that decodes paths in URIs of the same filesystem. With fsspec, they are not quoted."""
    return str if _arrow_root(uri) is None else unquote


def split_glob(uri: str) -> tuple[str, re.Pattern[str] | None]:
    """Split a URI into the directory above its first wildcard and the glob; the glob is None without wildcards.

    The glob matches decoded URIs without their query.
    """
    bare, mark, query = uri.partition("?")  # in a URI, "?" begins a query
    wildcard = WILDCARD.search(bare)
    if wildcard is None:
        return uri, None
    return bare[: bare.rfind("/", 0, wildcard.start()) + 1] + mark + query, glob_pattern(bare, decoder(uri))


def glob_pattern(uri: str, decode: Callable[[str], str]) -> re.Pattern[str]:
    """Compile a glob pattern for URIs. `*` does not match "/", but `**` does."""
    return re.compile("".join(_glob_regex(token, decode) for token in _GLOB_TOKEN.split(uri)) + r"\Z")


def _glob_regex(token: str, decode: Callable[[str], str]) -> str:
    if token.startswith("[") and token.endswith("]"):
        return fnmatch.translate(token)[:-2]  # without the end of the text: the rules of local globs
    return _GLOB_REGEX.get(token) or re.escape(decode(token))


def _arrow_root(uri: str) -> tuple[arrow_fs.FileSystem, str] | None:
    if "::" in uri:  # chained URIs need fsspec
        return None
    parts = urlsplit(uri, allow_fragments=False)
    query = f"?{parts.query}" if parts.query else ""
    with system_errors(uri, "a server that answers"):
        return _arrow_filesystem(f"{parts.scheme}://{parts.netloc}{query}")


@lru_cache(maxsize=64)
def _arrow_filesystem(root: str) -> tuple[arrow_fs.FileSystem, str] | None:
    """Return pyarrow's filesystem at the root of a URI, or None. Cached because some filesystems access the network."""
    if _GOOGLE.match(root):
        root += f"{'&' if '?' in root else '?'}retry_limit_seconds={_RETRY_SECONDS}"
    try:
        system, path = arrow_fs.FileSystem.from_uri(root)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return system, path
