"""Files of a store: durable and atomic on a local folder, the same calls on an object store."""

from __future__ import annotations

import os
import re
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote

import pyarrow as pa

from posterity.errors import InvalidParameter, Missing, MissingExtra, StoreError, Superseded
from posterity.storage.failpoints import reach

TEMPORARY = "."
"""What the names of files begin with that are not in their place yet."""

_DECODED_TWICE = r"%[0-9A-Fa-f]{2}"
# It takes a backslash for a slash, or fails (deltalake 1.6).
_NOT_FOR_DELTA = re.compile(rf"[\x00-\x1f\x7f\\\[\]^|\ud800-\udfff]|{_DECODED_TWICE}")


class Files(Protocol):
    """The few operations a store needs of where it lives. Paths are relative to its root."""

    root: str
    options: dict[str, str] | None
    grain: float
    """Seconds by which the time of a file may lag behind the clock."""

    @property
    def url(self) -> str:
        """The root as Delta Lake takes it."""

    def read(self, path: str) -> pa.Buffer:
        """The content of a file."""

    def open(self, path: str, most: int | None = None) -> Any:
        """A file for Arrow to stream; ``most``: no more bytes than these are needed.

        For Parquet files see ``parquet``.
        """

    def write(self, path: str, content: bytes | pa.Buffer) -> int:
        """Write a file, whole or not at all, and make it durable; returns its size."""

    def writing(self, path: str) -> AbstractContextManager[Any]:
        """A file to be written part by part; as ``write`` has it, when all of it is written."""

    def size(self, path: str) -> int | None:
        """The size of a file; None if there is none."""

    def list(self, folder: str) -> list[str]:
        """All files below a folder, by path, sorted."""

    def times(self, folder: str) -> dict[str, float]:
        """All files below a folder, temporary ones too, and when each was last changed."""

    def some(self, most: int) -> Sequence[str]:
        """Some of all files, by path: so many at most."""

    def delete(self, path: str) -> None:
        """Remove a file; no error if it is gone already."""

    def sync(self, path: str) -> None:
        """Make a file that somebody else wrote durable."""


class LocalFiles:
    """A folder. Every write is synced before it is renamed into place, and the folder after it."""

    grain = 0.02  # the kernel's clock for files ticks every few milliseconds

    def __init__(self, root: str) -> None:
        self.root = str(Path(root).absolute())
        self.options: dict[str, str] | None = None

    @property
    def url(self) -> str:
        """Refuses what Delta Lake would read and write at different places."""
        _refuse(self.root, _NOT_FOR_DELTA.search(str(Path(self.root).resolve())))
        return self.root

    def _at(self, path: str) -> Path:
        return Path(self.root) / path

    def read(self, path: str) -> pa.Buffer:
        """Memory-mapped, so that reading a column does not read the rest."""
        try:
            with pa.memory_map(str(self._at(path))) as file:
                return file.read_buffer()
        except FileNotFoundError:
            raise Missing(f"'{self._at(path)}' cannot be read: there is none.") from None
        except OSError as error:
            raise StoreError(f"'{self._at(path)}' cannot be read: {error}.") from None

    def open(self, path: str, most: int | None = None) -> Any:  # noqa: ARG002
        """From the file system."""
        return pa.OSFile(str(self._at(path)))

    def write(self, path: str, content: bytes | pa.Buffer) -> int:
        """At once, and again if that was in vain."""
        while True:
            try:
                with self.writing(path) as file:
                    file.write(content)
                return len(content)
            except Superseded:
                continue

    @contextmanager
    def writing(self, path: str) -> Iterator[Any]:
        """Through a temporary file beside it."""
        target = self._at(path)
        beside = target.with_name(f"{TEMPORARY}{target.name}.{uuid.uuid4().hex[:8]}")
        reach("file.before")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as file:
                yield file
                reach("file.written")
                file.flush()
                os.fsync(file.fileno())
            reach("file.synced")
            _move(beside, target)
            _sync_folder(target.parent)
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreError(
                f"'{target}' cannot be written: {reason}.",
                hint="Nothing was committed; make room or grant access and run the same again.",
            ) from None
        finally:
            with suppress(OSError):
                beside.unlink()
        reach("file.renamed")

    def size(self, path: str) -> int | None:
        """From the file system."""
        try:
            return self._at(path).stat().st_size
        except FileNotFoundError:
            return None

    def list(self, folder: str) -> list[str]:
        """Temporary files of interrupted writes are left out."""
        return sorted(self._found(self._at(folder)))

    def _found(self, top: Path) -> Iterator[str]:
        for path in top.rglob("*"):
            if path.is_file() and path.name[0] != TEMPORARY:
                yield str(path.relative_to(self.root))

    def times(self, folder: str) -> dict[str, float]:
        """From the file system."""
        found = {}
        for path in sorted(self._at(folder).rglob("*")):
            with suppress(FileNotFoundError):  # a temporary file that is in its place by now
                if path.is_file():
                    found[str(path.relative_to(self.root))] = path.stat().st_mtime
        return found

    def some(self, most: int) -> Sequence[str]:
        """Without a list of all of them: the folder may be a whole disk."""
        return tuple(islice(self._found(Path(self.root)), most))

    def delete(self, path: str) -> None:
        """Remove a file."""
        self._at(path).unlink(missing_ok=True)

    def sync(self, path: str) -> None:
        """The file and its folder."""
        with self._at(path).open("rb") as file:
            os.fsync(file.fileno())
        _sync_folder(self._at(path).parent)


def arrow_memory(size: int, parts: Iterable[tuple[int, Any]]) -> pa.Buffer:
    """Memory of Arrow's own with a copy of some bytes, each at its place.

    Of a buffer that belongs to Python, Arrow's threads may be the last to let go, and need the
    interpreter for it: if that is shutting down, the process aborts after its work is done.
    """
    # What is not written takes no memory: so large a piece is mapped, and freed at once.
    buffer = pa.allocate_buffer(size, pa.system_memory_pool())
    view = memoryview(buffer).cast("B")
    for begin, part in parts:
        view[begin : begin + len(part)] = memoryview(part).cast("B")
    return buffer


class RemoteFiles:
    """An object-store prefix, with the options Delta Lake takes (the ``remote`` extra)."""

    grain = 2.0  # times are whole seconds, and of the server's clock

    def __init__(self, root: str, options: dict[str, str] | None) -> None:
        try:
            import obstore
            from obstore.store import from_url
        except ImportError:
            raise MissingExtra.of("A store on an object store", "remote") from None
        self.root = root.rstrip("/")
        self.options = options
        self._client = obstore
        try:
            self._store: Any = from_url(self._address, **_client_options(options))
        except Exception as error:
            raise StoreError(f"'{self.root}' cannot be opened: {_first(error)}.") from None

    @property
    def url(self) -> str:
        """Refuses what Delta Lake would decode twice."""
        _refuse(self.root, re.search(_DECODED_TWICE, self.root))
        return self._address

    @property
    def _address(self) -> str:
        """Percent-encoded, since keys are taken as they are written: %20 is not a space."""
        scheme, _, rest = self.root.partition("://")
        bucket, slash, prefix = rest.partition("/")
        return f"{scheme}://{bucket}{slash}{quote(prefix)}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process opens a connection of its own.
        return RemoteFiles, (self.root, self.options)

    @contextmanager
    def _request(self, path: str, *, to: str = "read", missing_too: bool = True) -> Iterator[None]:
        """What the object store says when a request fails, as one sentence.

        Without ``missing_too``, the caller says what it means that there is no object.
        """
        try:
            yield
        except Exception as error:
            if isinstance(error, FileNotFoundError) and not missing_too:
                raise
            raise StoreError(f"'{self.root}/{path}' cannot be {to}: {_first(error)}.") from None

    def read(self, path: str) -> pa.Buffer:
        """The whole object."""
        try:
            with self._request(path, missing_too=False):
                content = self._client.get(self._store, path).bytes()
                return arrow_memory(len(content), [(0, content)])
        except FileNotFoundError:
            raise Missing(f"'{self.root}/{path}' cannot be read: there is none.") from None

    def open(self, path: str, most: int | None = None) -> Any:
        """A copy in the temporary folder: Arrow's threads must not call what is Python's."""
        limited: Any = {} if most is None or self.size_of(path) <= most else {"range": (0, most)}
        with self._request(path), tempfile.NamedTemporaryFile(prefix="posterity-") as copy:
            for part in self._client.get(self._store, path, options=limited):
                copy.write(part)
            copy.flush()
            return pa.OSFile(copy.name)  # readable when its name is gone

    def size_of(self, path: str) -> int:
        """The size of an object there must be."""
        size = self.size(path)
        if size is None:
            raise Missing(f"'{self.root}/{path}' cannot be read: there is none.")
        return size

    def ranges(self, path: str, wanted: Sequence[tuple[int, int]]) -> Sequence[Any]:
        """Bytes of an object, each from and to."""
        starts, ends = zip(*wanted, strict=True)
        with self._request(path):
            parts: Sequence[Any] = self._client.get_ranges(
                self._store, path, starts=starts, ends=ends
            )
        return parts

    def write(self, path: str, content: bytes | pa.Buffer) -> int:
        """One object, visible when complete."""
        reach("file.before")
        with self._request(path, to="written"):
            # A buffer of signed bytes is refused; as unsigned ones it needs no copy.
            self._client.put(self._store, path, memoryview(content).cast("B"))
        reach("file.renamed")
        return len(content)

    @contextmanager
    def writing(self, path: str) -> Iterator[Any]:
        """Held in memory until it is complete."""
        sink = pa.BufferOutputStream()
        yield sink
        self.write(path, sink.getvalue())

    def size(self, path: str) -> int | None:
        """From the object's metadata."""
        with suppress(FileNotFoundError), self._request(path, missing_too=False):
            return int(self._client.head(self._store, path)["size"])
        return None

    def list(self, folder: str) -> list[str]:
        """By prefix."""
        return sorted(self.times(folder))

    def times(self, folder: str) -> dict[str, float]:
        """By prefix."""
        with self._request(folder, to="listed"):
            pages = self._client.list(self._store, f"{folder}/" if folder else None)
            listed = [one for page in pages for one in page]
        return {str(one["path"]): one["last_modified"].timestamp() for one in listed}

    def some(self, most: int) -> Sequence[str]:
        """Of the list of all."""
        return self.list("")[:most]

    def delete(self, path: str) -> None:
        """Remove an object."""
        request = self._request(path, to="deleted", missing_too=False)
        with suppress(FileNotFoundError), request:
            self._client.delete(self._store, path)

    def sync(self, path: str) -> None:
        """An object store's answer means durable."""


def _client_options(options: dict[str, str] | None) -> dict[str, Any]:
    """Delta Lake takes client settings among the others; here they are apart."""
    given = dict(options or {})
    insecure = given.pop("AWS_ALLOW_HTTP", given.pop("allow_http", "false"))
    client = {"client_options": {"allow_http": True}} if insecure.lower() == "true" else {}
    return {**client, "config": given} if given else client


def _first(error: Exception) -> str:
    return str(error).splitlines()[0]


def open_files(root: str | os.PathLike[str], options: dict[str, str] | None = None) -> Files:
    """The files at a folder or an object-store URI."""
    if time.time() < 0:  # Delta's library does not survive that
        raise StoreError(
            "The clock of this machine is set to a time before 1970; no store works with that.",
            hint="Set the clock right, and run the same again.",
        )
    text = local_path(os.fspath(root))
    if "://" not in text:
        return LocalFiles(text)
    if re.match(r"[^/]*://[^/@]*:[^/]*@", text):  # abfss://container@account has no password
        raise InvalidParameter(
            "The address of a store must not hold a password: messages repeat it.",
            hint="Put it into the environment, or into options=.",
        )
    return RemoteFiles(text, options)


def local_path(text: str) -> str:
    """What a file URI stands for; anything else as it is.

    >>> local_path("file://localhost/photos/100%25%20mine"), local_path("100%25")
    ('/photos/100% mine', '100%25')
    """
    if not text.startswith("file://"):
        return text
    host, slash, path = text.removeprefix("file://").partition("/")
    if not slash or host not in ("", "localhost"):
        raise InvalidParameter(
            f"{text!r} is not a file of this machine; a file URI names no other host."
        )
    return "/" + unquote(path)


def _refuse(root: str, strange: re.Match[str] | None) -> None:
    if strange is not None:
        raise StoreError(
            f"{root!r} cannot hold a store: Delta Lake cannot use paths with {strange[0]!r}.",
            hint="Avoid control characters, backslashes, any of [ ] ^ |, and % before two "
            "hexadecimal digits.",
        )


def _move(beside: Path, target: Path) -> None:
    try:
        beside.replace(target)
    except FileNotFoundError:
        # A vacuum takes temporary files for those of a writer that died.
        raise Superseded(
            f"'{target}' was vacuumed while it was written.",
            hint="Nothing was committed; run the same command again.",
        ) from None


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
