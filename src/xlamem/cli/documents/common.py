"""What several documents contain, and how types refer to the tables of `schema`."""

from typing import Annotated, Any, TypedDict

from ... import schema

Row = dict[str, Any]
Bytes = Annotated[int, "bytes"]


class Nullable:
    """Columns of a table that can be null in this document."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns


class Without:
    """Columns of a table that this document leaves out."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns


Module = Annotated[Row, schema.MODULES]
UnchargedBuffer = Annotated[Row, schema.COMPUTED["live_set"], Nullable("bytes", "exclusive", "shared")]


class Failure(TypedDict):
    """An input that could not be read."""

    name: str
    error: str


class Program(TypedDict):
    """What identifies a program."""

    name: Annotated[str, "common stem of the dump's files"]
    module: Module


class Dump(Program):
    """A program, and where its dump is."""

    place: Annotated[str, "directory, archive or URI of the dump"]
