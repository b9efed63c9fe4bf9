"""Test double of files, with faults of real disks: torn writes, lost fsyncs, full, failing disks.

`crash()` is a power loss: each file keeps its fsynced bytes, and a prefix of the others that the
entropy chooses. Names survive, as the port fsyncs folders; so do the results of `write_atomic` and
`rename`.
"""

from __future__ import annotations

import errno

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.testing.clocks import ManualClock


class FileData:
    """The bytes of one file, shared by all open files of it, like an inode."""

    __slots__ = ("data", "durable_bytes", "modified_ms")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable_bytes = 0
        self.modified_ms = 0


class MemoryFile:
    """One open file."""

    def __init__(self, owner: MemoryFiles, path: str, node: FileData) -> None:
        self._owner = owner
        self.node = node
        """The bytes, shared with the other open files of this name."""
        self.path = path
        self.size_bytes = len(node.data)

    @property
    def data(self) -> bytearray:
        """The bytes of the file, whatever the faults of its disk."""
        return self.node.data

    def append(self, view: memoryview | bytes) -> None:
        """Append at `size_bytes`. A full or failing disk raises, and nothing is written."""
        self._owner.check(self.path, len(view))
        self.node.data[self.size_bytes : self.size_bytes + len(view)] = view
        self._owner.touch(self.node)
        self.size_bytes += len(view)

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes."""
        self._owner.check(self.path, 0)
        # No view of it: a thread that appends meanwhile could not make it longer.
        return bytes(self.node.data[position : position + size])

    def truncate(self, size: int) -> None:
        """Truncate the file, or extend it with zeros as ftruncate does."""
        self._owner.check(self.path, 0)
        data = self.node.data
        if size > len(data):
            data.extend(bytes(size - len(data)))
        del data[size:]
        self._owner.touch(self.node)
        self.node.durable_bytes = min(self.node.durable_bytes, size)
        self.size_bytes = size

    def fsync(self) -> None:
        """Make the data durable, unless this disk loses fsyncs."""
        self._owner.check(self.path, 0)
        if not self._owner.loses_fsyncs:
            self.node.durable_bytes = len(self.node.data)

    def fileno(self) -> int:
        """No descriptor in memory."""
        return -1

    def close(self) -> None:
        """Nothing to release."""


class _Lock:
    """A held lock. Like flock with its descriptor, it ends when the object is collected."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path
        held.add(path)

    def close(self) -> None:
        """Release the lock."""
        self._held.discard(self._path)

    def __del__(self) -> None:
        self.close()


class MemoryFiles:
    """A file system in memory. Tests set its fault attributes. Several threads may use it."""

    def __init__(self, entropy: Entropy | None = None, clock: Clock | None = None) -> None:
        self._nodes: dict[str, FileData] = {}
        self._locks: set[str] = set()
        self._entropy = entropy
        self._clock = clock or ManualClock()
        self.loses_fsyncs = False
        self.failing_prefix: str | None = None
        """Every access below this path raises EIO."""
        self.free_bytes: int | None = None
        """Bytes that may still be appended; None: no limit."""

    def check(self, path: str, appended: int) -> None:
        """Raise the fault that an access to `path` meets."""
        if self.failing_prefix is not None and path.startswith(self.failing_prefix):
            raise OSError(errno.EIO, "input/output error (injected)", path)
        if self.free_bytes is not None and appended:
            if appended > self.free_bytes:
                raise OSError(errno.ENOSPC, "no space left (injected)", path)
            self.free_bytes -= appended

    def open(self, path: str, *, must_exist: bool = False) -> MemoryFile:
        """Open or create."""
        self.check(path, 0)
        if must_exist and path not in self._nodes:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if path not in self._nodes:
            self._nodes[path] = FileData()
            self.touch(self._nodes[path])
        return MemoryFile(self, path, self._nodes[path])

    def read(self, path: str) -> bytes:
        """A whole file."""
        return bytes(self._node_of(path).data)

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace; durable at once."""
        self.check(path, len(data))
        node = FileData()
        node.data += data
        node.durable_bytes = len(data)
        self.touch(node)
        self._nodes[path] = node

    def names(self, path: str) -> list[str]:
        """Names directly below `path`."""
        self.check(path, 0)
        prefix = path.rstrip("/") + "/"
        return sorted(
            {
                name[len(prefix) :].split("/", 1)[0]
                for name in list(self._nodes)
                if name.startswith(prefix)
            }
        )

    def content(self, path: str) -> bytearray:
        """The bytes of a file, for tests that damage them."""
        return self._node_of(path).data

    def touch(self, node: FileData) -> None:
        """Set the modification time to now."""
        node.modified_ms = self._clock.now_ms()

    def modified_ms(self, path: str) -> int:
        """The modification time."""
        return self._node_of(path).modified_ms

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the modification time."""
        self._node_of(path).modified_ms = modified_ms

    def _node_of(self, path: str) -> FileData:
        self.check(path, 0)
        node = self._nodes.get(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node

    def rename(self, source: str, target: str) -> None:
        """Rename a file or a folder."""
        self.check(source, 0)
        moved = [n for n in list(self._nodes) if n == source or n.startswith(source + "/")]
        if not moved:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        for name in moved:
            self._nodes[target + name[len(source) :]] = self._nodes.pop(name)

    def remove(self, path: str) -> None:
        """Remove a file or a folder."""
        self.check(path, 0)
        for name in [n for n in list(self._nodes) if n == path or n.startswith(path + "/")]:
            del self._nodes[name]

    def lock(self, path: str) -> object | None:
        """Take an exclusive lock, until the result is collected or closed."""
        self.check(path, 0)
        self._nodes.setdefault(path, FileData())
        return None if path in self._locks else _Lock(self._locks, path)

    def crash(self, *, tear: int | None = None) -> None:
        """Power loss: keep the durable part of each file, and `tear` (or a random number) of the
        bytes after it. A torn end may hold garbage."""
        self._locks.clear()
        for name in sorted(self._nodes):
            node = self._nodes[name]
            loose = len(node.data) - node.durable_bytes
            if loose <= 0:
                continue
            kept = min(tear, loose) if tear is not None else self._pick(loose)
            del node.data[node.durable_bytes + kept :]
            if tear is None and kept and self._pick(3) == 0:
                garbage = min(kept, 1 + self._pick(64))
                node.data[-garbage:] = bytes(garbage)
            node.durable_bytes = len(node.data)

    def _pick(self, highest: int) -> int:
        """A random number in [0, highest]; 0 without entropy."""
        return int(self._entropy.uniform(0, highest + 0.999)) if self._entropy else 0
