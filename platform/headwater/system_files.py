"""`headwater.ports.files` on the real file system: positional I/O, atomic replace, flock."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil


class SystemFile:
    """An open file. An append is one pwrite in the common case."""

    __slots__ = ("_fd", "_is_named", "path", "size_bytes")

    def __init__(self, path: str, *, must_exist: bool = False) -> None:
        self._fd = -1
        self.path = path
        self._is_named = must_exist or os.path.exists(path)
        flags = os.O_RDWR | os.O_CLOEXEC | (0 if must_exist else os.O_CREAT)
        self._fd = os.open(path, flags, 0o644)
        self.size_bytes = os.fstat(self._fd).st_size

    def append(self, view: memoryview | bytes) -> None:
        """Write all of `view` at the end. After an OSError the file is as long as before."""
        at = self.size_bytes
        try:
            written = os.pwrite(self._fd, view, at)
        except OSError:
            self._restore(at)
            raise
        if written != len(view):
            self._append_rest(memoryview(view), at, written)
        self.size_bytes = at + len(view)

    def _append_rest(self, view: memoryview, at: int, written: int) -> None:
        """Continue after a short write (signal, quota, full disk) until done or an error."""
        try:
            while written < len(view):
                count = os.pwrite(self._fd, view[written:], at + written)
                if count == 0:
                    raise OSError(errno.ENOSPC, "no progress in writing", self.path)
                written += count
        except OSError:
            self._restore(at)
            raise

    def _restore(self, size: int) -> None:
        """Truncate the bytes of a failed append. If that fails too, the next append overwrites
        them: positions come from `size_bytes`, never from the disk."""
        try:
            os.ftruncate(self._fd, size)
        except OSError:
            return

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`."""
        return os.pread(self._fd, size, position)

    def truncate(self, size: int) -> None:
        """Cut the file."""
        os.ftruncate(self._fd, size)
        self.size_bytes = size

    def fsync(self) -> None:
        """Make data and length durable, and the name of a new file too (KAFKA-3968)."""
        os.fdatasync(self._fd)
        if not self._is_named:
            _sync_folder(os.path.dirname(self.path))
            self._is_named = True

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def close(self) -> None:
        """Close once; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


class SystemFiles:
    """The file system of this machine."""

    def open(self, path: str, *, must_exist: bool = False) -> SystemFile:
        """Open for reading and appending. A new name is durable after the first fsync."""
        try:
            return SystemFile(path, must_exist=must_exist)
        except FileNotFoundError:
            if must_exist:
                raise
            os.makedirs(os.path.dirname(path), exist_ok=True)
            _sync_folder(os.path.dirname(os.path.dirname(path)))
            return SystemFile(path)

    def read(self, path: str) -> bytes:
        """A whole file."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:  # `open` takes five more system calls per file, and there are thousands of small files
            parts, size = [], max(os.fstat(fd).st_size, 1)
            while part := os.read(fd, size):
                parts.append(part)
        finally:
            os.close(fd)
        return b"".join(parts)

    def write_atomic(self, path: str, data: bytes) -> None:
        """Temporary file, fsync, rename, fsync of the folder."""
        folder = os.path.dirname(path)
        os.makedirs(folder, exist_ok=True)
        temporary = path + ".tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
        _sync_folder(folder)

    def names(self, path: str) -> list[str]:
        """Sorted names; empty when there is no such folder."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def modified_ms(self, path: str) -> int:
        """By the file's mtime."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the file's mtime."""
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def rename(self, source: str, target: str) -> None:
        """Rename, then fsync the target's folder."""
        os.rename(source, target)
        _sync_folder(os.path.dirname(target))

    def remove(self, path: str) -> None:
        """Remove a file or a whole folder."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            if not os.path.isdir(path):
                raise
            shutil.rmtree(path)

    def lock(self, path: str) -> object | None:
        """flock without waiting; the lock lives as long as the result."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        held = SystemFile(path)
        try:
            fcntl.flock(held.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.close()
            return None
        return held


def disk_space(path: str) -> tuple[int, int]:
    """(total bytes, bytes free for this process) of the file system of `path`."""
    found = os.statvfs(path)
    return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail


def _sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
