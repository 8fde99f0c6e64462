"""Files of a store: durable and atomic on a local folder, the same calls on an object store."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from posterity.errors import MissingExtra, StoreError
from posterity.tables.failpoints import reach


class Files(Protocol):
    """The few operations a store needs of where it lives. Paths are relative to its root."""

    root: str
    options: dict[str, str] | None

    def read(self, path: str) -> pa.Buffer:
        """The content of a file."""

    def open(self, path: str) -> Any:
        """A file to be read part by part."""

    def write(self, path: str, content: bytes | pa.Buffer) -> int:
        """Write a file, whole or not at all, and make it durable; returns its size."""

    def size(self, path: str) -> int | None:
        """The size of a file; None if there is none."""

    def list(self, folder: str) -> list[str]:
        """All files below a folder, by path, sorted."""

    def delete(self, path: str) -> None:
        """Remove a file; no error if it is gone already."""

    def sync(self, path: str) -> None:
        """Make a file that somebody else wrote durable."""


class LocalFiles:
    """A folder. Every write is synced before it is renamed into place, and the folder after it."""

    def __init__(self, root: str) -> None:
        self.root = str(Path(root).absolute())
        self.options: dict[str, str] | None = None

    def _at(self, path: str) -> Path:
        return Path(self.root) / path

    def read(self, path: str) -> pa.Buffer:
        """Memory-mapped, so that reading a column does not read the rest."""
        try:
            with pa.memory_map(str(self._at(path))) as file:
                return file.read_buffer()
        except OSError as error:
            raise StoreError(f"'{self._at(path)}' cannot be read: {error}.") from None

    def open(self, path: str) -> Any:
        """From the file system."""
        return pa.OSFile(str(self._at(path)))

    def write(self, path: str, content: bytes | pa.Buffer) -> int:
        """Through a temporary file beside it."""
        target = self._at(path)
        beside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
        reach("file.before")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as file:
                file.write(content)
                reach("file.written")
                file.flush()
                os.fsync(file.fileno())
            reach("file.synced")
            beside.replace(target)
            _sync_folder(target.parent)
        except OSError as error:
            beside.unlink(missing_ok=True)
            reason = error.strerror or str(error)
            raise StoreError(
                f"'{target}' cannot be written: {reason}.",
                hint="Nothing was committed; make room or grant access and run the same again.",
            ) from None
        reach("file.renamed")
        return len(content)

    def size(self, path: str) -> int | None:
        """From the file system."""
        try:
            return self._at(path).stat().st_size
        except FileNotFoundError:
            return None

    def list(self, folder: str) -> list[str]:
        """Temporary files of interrupted writes are left out."""
        top = self._at(folder)
        found = (path for path in top.rglob("*") if path.is_file() and path.name[0] != ".")
        return sorted(str(path.relative_to(self.root)) for path in found)

    def delete(self, path: str) -> None:
        """Remove a file."""
        self._at(path).unlink(missing_ok=True)

    def sync(self, path: str) -> None:
        """The file and its folder."""
        with self._at(path).open("rb") as file:
            os.fsync(file.fileno())
        _sync_folder(self._at(path).parent)


class RemoteFiles:
    """An object-store prefix, with the options Delta Lake takes (the ``remote`` extra)."""

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
            self._store: Any = from_url(self.root, **_client_options(options))
        except Exception as error:
            raise StoreError(f"'{self.root}' cannot be opened: {_first(error)}.") from None

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process opens a connection of its own.
        return RemoteFiles, (self.root, self.options)

    def read(self, path: str) -> pa.Buffer:
        """The whole object."""
        try:
            return pa.py_buffer(bytes(self._client.get(self._store, path).bytes()))
        except Exception as error:
            raise StoreError(f"'{self.root}/{path}' cannot be read: {_first(error)}.") from None

    def open(self, path: str) -> Any:
        """In ranges, as they are asked for."""
        size = self.size(path)
        if size is None:
            raise StoreError(f"'{self.root}/{path}' cannot be read: there is none.")

        def fetch(start: int, length: int) -> bytes:
            try:
                part = self._client.get_range(self._store, path, start=start, length=length)
            except Exception as error:
                raise OSError(f"'{self.root}/{path}' cannot be read: {_first(error)}.") from None
            return bytes(part)

        return pa.PythonFile(_Ranges(fetch, size), mode="r")

    def write(self, path: str, content: bytes | pa.Buffer) -> int:
        """One object, visible when complete."""
        reach("file.before")
        try:
            self._client.put(self._store, path, bytes(content))
        except Exception as error:
            raise StoreError(f"'{self.root}/{path}' cannot be written: {_first(error)}.") from None
        reach("file.renamed")
        return len(content)

    def size(self, path: str) -> int | None:
        """From the object's metadata."""
        try:
            return int(self._client.head(self._store, path)["size"])
        except FileNotFoundError:
            return None
        except Exception as error:
            raise StoreError(f"'{self.root}/{path}' cannot be read: {_first(error)}.") from None

    def list(self, folder: str) -> list[str]:
        """By prefix."""
        try:
            pages = self._client.list(self._store, f"{folder}/" if folder else None)
            return sorted(str(found["path"]) for page in pages for found in page)
        except Exception as error:
            raise StoreError(f"'{self.root}/{folder}' cannot be listed: {_first(error)}.") from None

    def delete(self, path: str) -> None:
        """Remove an object."""
        if self.size(path) is not None:
            self._client.delete(self._store, path)

    def sync(self, path: str) -> None:
        """An object store's answer means durable."""


class _Ranges:
    """A file in the form Arrow reads, of which only the parts asked for are fetched."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch, self._size, self._at = fetch, size, 0
        self.closed = False

    def read(self, length: int | None = None) -> bytes:
        """What follows, at most so many bytes."""
        left = max(0, self._size - self._at)
        wanted = left if length is None or length < 0 else min(length, left)
        part = self._fetch(self._at, wanted) if wanted else b""
        self._at += len(part)
        return part

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go somewhere else."""
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = origin + offset
        return self._at

    def tell(self) -> int:
        """Where the next part is read."""
        return self._at

    def close(self) -> None:
        """Nothing is held open."""
        self.closed = True


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
    text = os.fspath(root)
    if "://" in text and not text.startswith("file://"):
        return RemoteFiles(text, options)
    return LocalFiles(text.removeprefix("file://"))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
