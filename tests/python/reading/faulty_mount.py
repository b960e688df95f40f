# SPDX-License-Identifier: Apache-2.0
"""A mount of FUSE that shows the files of a folder, used with faults that a seed chooses.

    with faulty_mount(folder, seed=1) as mount:   # before any thread starts
        mount.set(0.3)                            # three requests in ten have a fault
        (mount.path / "file").read_bytes()

Reads fail, are late or short. Writes fail, some of these torn, or are late. No write is short: a
loop device takes a short one for a whole one.

The mount is in a mount namespace of this process, and ends with it. Needs no root where users may
have namespaces (OSError otherwise). Protocol: linux/fuse.h, version 7.31.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import random
import signal
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _RELEASE, _FLUSH = 1, 2, 3, 14, 15, 18, 25
_INIT, _INTERRUPT, _BATCH_FORGET = 26, 36, 42
_UNANSWERED = {_FORGET, _BATCH_FORGET, _INTERRUPT}
_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_MS_REC, _MS_PRIVATE = 0x4000, 1 << 18
_ASYNC_DIO, _MAX_PAGES = 1 << 15, 1 << 22
_DIRECT_IO = 1
_THREADS = 4  # reads that are late do not hold up the others
_LATEST = 0.002


@dataclass
class Mount:
    path: Path
    _rate: mmap.mmap

    def set(self, rate: float) -> None:
        """The share of reads and writes that have a fault, from now on. From 3 on, all fail."""
        self._rate[:8] = struct.pack("d", rate)


@contextmanager
def faulty_mount(folder: Path, seed: int, sector: int = 1) -> Iterator[Mount]:
    """`sector`: short reads have a multiple of these bytes. OSError: this host allows no mount."""
    _own_namespace()
    rate = mmap.mmap(-1, 8)
    with tempfile.TemporaryDirectory() as place:
        device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
        _mount("faulty", place, "fuse", 0, options)
        child = os.fork()
        if child == 0:
            try:
                _Server(device, folder, rate, seed, sector).run()
            finally:
                os._exit(0)
        os.close(device)
        try:
            yield Mount(Path(place), rate)
        finally:
            ctypes.CDLL(None).umount2(place.encode(), 2)  # MNT_DETACH
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _own_namespace() -> None:
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEWNS) != 0:
        if libc.unshare(_NEWNS | _NEWUSER) != 0:
            raise OSError(ctypes.get_errno(), "no mount namespace")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE, None)


def _mount(source: str, place: str, kind: str | None, flags: int, options: str | None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = [word.encode() if word else None for word in (source, place, kind, options)]
    if libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]) != 0:
        raise OSError(ctypes.get_errno(), f"mount {place}")


class _Server:
    """Answers the kernel until the mount is gone."""

    def __init__(
        self, device: int, folder: Path, rate: mmap.mmap, seed: int, sector: int
    ) -> None:
        self._device = device
        self._sector = sector
        self._folder = folder
        self._rate = rate
        self._lock = threading.Lock()
        self._chance = random.Random(seed)
        self._names = {1: ""}  # by node
        self._nodes: dict[str, int] = {}

    def run(self) -> None:
        threads = [threading.Thread(target=self._serve) for _ in range(_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._device, 1 << 21)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue
                return
            _, code, unique, node = struct.unpack_from("=IIQQ", request)
            if code in _UNANSWERED:
                continue
            failed, answer = 0, b""
            try:
                answer = self._answer(code, node, request[40:])
            except OSError as error:
                failed = -(error.errno or errno.EIO)
            reply = struct.pack("=IiQ", 16 + len(answer), failed, unique) + answer
            try:
                os.write(self._device, reply)
            except OSError as error:
                if error.errno != errno.ENOENT:  # the request was interrupted
                    return

    def _answer(self, code: int, node: int, body: bytes) -> bytes:
        match code:
            case 26:  # _INIT
                return struct.pack(
                    "=IIIIHHIIHHI7I", 7, 31, 0, _ASYNC_DIO | _MAX_PAGES, 64, 48, 1 << 20, 1, 256,
                    0, 0, *[0] * 7,
                )  # fmt: skip
            case 1:  # _LOOKUP
                name = body.rstrip(b"\0").decode()
                attributes = self._attributes(name)
                with self._lock:
                    found = self._nodes.setdefault(name, len(self._nodes) + 2)
                    self._names[found] = name
                return struct.pack("=QQQQII", found, 0, 0, 0, 0, 0) + attributes
            case 3:  # _GETATTR
                return struct.pack("=QII", 0, 0, 0) + self._attributes(self._names[node])
            case 14:  # _OPEN
                return struct.pack("=QII", 0, _DIRECT_IO, 0)
            case 15:  # _READ
                _, offset, size = struct.unpack_from("=QQI", body)
                return self._read(self._names[node], offset, size)
            case 16:  # _WRITE
                _, offset, size = struct.unpack_from("=QQI", body)
                self._write(self._names[node], offset, body[40 : 40 + size])
                return struct.pack("=II", size, 0)
            case 18 | 20 | 25:  # _RELEASE, _FSYNC, _FLUSH
                return b""
        raise OSError(errno.ENOSYS, "not served")

    def _attributes(self, name: str) -> bytes:
        """ctime is mtime, so that who changes a file says how long ago."""
        found = (self._folder / name).stat()
        seconds, rest = divmod(found.st_mtime_ns, 10**9)
        mode = found.st_mode if stat.S_ISDIR(found.st_mode) else stat.S_IFREG | 0o644
        return struct.pack(
            "=6Q10I", found.st_ino, found.st_size, 0, seconds, seconds, seconds, rest, rest, rest,
            mode, 1, 0, 0, 0, 4096, 0,
        )  # fmt: skip

    def _fault(self) -> tuple[float, float]:
        """A kind, at least 1 if there is no fault, and a part. OSError: the request fails."""
        (rate,) = struct.unpack("d", self._rate[:8])
        with self._lock:
            kind = self._chance.random() / rate if rate else 1.0
            part = self._chance.random()
        if kind < 1 / 3:
            raise OSError(errno.EIO, "a fault")
        if kind < 2 / 3:
            time.sleep(part * _LATEST)
        return kind, part

    def _read(self, name: str, offset: int, size: int) -> bytes:
        kind, part = self._fault()
        with (self._folder / name).open("rb") as file:
            file.seek(offset)
            found = file.read(size)
        if not 2 / 3 <= kind < 1:
            return found
        return found[: max(1, int(part * len(found)) // self._sector) * self._sector]

    def _write(self, name: str, offset: int, data: bytes) -> None:
        kind, part = self._fault()
        is_torn = 2 / 3 <= kind < 1
        with (self._folder / name).open("r+b", buffering=0) as file:
            file.seek(offset)
            file.write(data[: int(part * len(data))] if is_torn else data)
        if is_torn:
            raise OSError(errno.EIO, "a torn write")
