# SPDX-License-Identifier: Apache-2.0
"""Key-value servers behind a unix socket: kinds, start and end, and the counters they report.

A server has a temporary directory with a socket. It ends with the block it was started in; if this
process dies, the kernel ends it.
"""

from __future__ import annotations

import getpass
import math
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import headrace
from headrace import _programs as programs
from headrace._errors import error_of
from headrace_bench.two_memories import kind_in_memory

#: The program with the client, Headrace's own store, and the task that moves a server's pages.
PROGRAM = "headrace-bench-kv"
#: Kind of the connections between clients and servers.
TRANSPORT = "unix socket"
_START_SECONDS = 20.0
_ANSWER_SECONDS = 10.0


@dataclass(frozen=True)
class Server:
    name: str
    program: str
    package: str  #: its name in apt
    protocol: str = "redis"
    spills: bool = False  #: values on SSD are in a file of its own, not in swap


SERVERS = {
    server.name: server
    for server in (
        Server("redis", "redis-server", "redis-server"),
        Server("valkey", "valkey-server", "-t bookworm-backports valkey-server"),
        Server("memcached", "memcached", "memcached", "memcached", spills=True),
        Server("own", PROGRAM, "", spills=True),
    )
}


@dataclass(frozen=True)
class Data:
    """Size of the data set."""

    records: int
    value: int
    share: float = 0.0  #: of it in a file, where the server has one


def version(server: Server) -> str:
    """The server's version. AbsentError: it is not installed."""
    if server.name == "own":
        programs.find(server.program)
        return f"headrace {headrace.__version__}"
    if shutil.which(server.program) is None:
        raise headrace.AbsentError(
            f"no {server.program}; install it: sudo apt install {server.package}"
        )
    told = subprocess.run([server.program, "--version"], capture_output=True, text=True, timeout=60)
    found = re.search(r"(?:v=|memcached )(\S+)", told.stdout)
    return f"{server.program} {found[1] if found else 'of unknown version'}"


def check_directory(directory: Path) -> None:
    """AbsentError: files in this directory are not on an SSD."""
    if kind := kind_in_memory(directory):
        raise headrace.AbsentError(
            f"{directory} is in memory ({kind}); say where there is an SSD: --directory DIR"
        )


@dataclass
class Running:
    """A server that answers."""

    server: Server
    process: int
    path: str  #: of its socket
    file: Path | None  #: where its values on SSD are

    def load_rate(self, records: int) -> int | None:
        """Largest number of records per second during load; None: unlimited."""
        if self.server.protocol != "memcached" or self.file is None:
            return None
        return max(_LOAD_LEAST, records // _LOAD_SECONDS)

    def slow_gets(self) -> int | None:
        """Number of reads so far that needed the server's file."""
        return self.told({"memcached": "get_extstore", "own": "slow_gets"}.get(self.server.name))

    def dropped(self) -> int:
        """Number of requests so far for values that it had dropped: memcached is a cache."""
        return (self.told("get_misses") if self.server.protocol == "memcached" else None) or 0

    def came_in(self) -> int | None:
        """Number of values that the server has moved from its file to memory so far."""
        names = {"memcached": "recache_from_extstore", "own": "slow_gets"}
        return self.told(names.get(self.server.name))

    def told(self, name: str | None) -> int | None:
        if name is None:
            return None
        memcached = self.server.protocol == "memcached"
        end = b"END\r\n" if memcached else b"\r\n\r\n"
        text = self._asked(b"stats\r\n" if memcached else b"*1\r\n$4\r\nINFO\r\n", end)
        found = re.search(rf"\b{name}[ :](\d+)", text)
        return int(found[1]) if found else None

    def _asked(self, question: bytes, end: bytes) -> str:
        came = b""
        try:
            with socket.socket(socket.AF_UNIX) as asked:
                asked.settimeout(_ANSWER_SECONDS)
                asked.connect(self.path)
                asked.sendall(question)
                while not came.endswith(end) and (more := asked.recv(65536)):
                    came += more
        except OSError as error:
            raise headrace.IoError(f"{self.server.program}: {error}") from None
        return came.decode(errors="replace")

    def written(self) -> None:
        """Flushes the server's file to the device, and drops the kernel's copy of it."""
        if self.file is None:
            return
        with self.file.open("rb+") as file:
            os.fsync(file.fileno())
        self.forget_file()

    def forget_file(self) -> None:
        """Drops the kernel's cached pages of the file, as if memory were short."""
        if self.file is None:
            return
        with self.file.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def started(
    server: Server, launch: list[str], data: Data, directory: Path, placement: str = ""
) -> Iterator[Running]:
    """Starts an empty server. `placement`: for the heap of Headrace's own store. Errors: io,
    timed_out: it does not start.
    """
    try:
        with (
            tempfile.TemporaryDirectory(prefix="headrace-kv-") as name,
            tempfile.TemporaryDirectory(prefix="headrace-kv-", dir=directory) as files,
        ):
            file = Path(files) / "values" if server.spills and data.share else None
            path = str(Path(name) / "socket")
            asked = _command(server, name, path, data, file, placement)
            with _process(server, [*launch, *asked], Path(name)) as process:
                yield Running(server, process, path, file)
    except OSError as error:
        raise error_of(error, "cannot make a directory for the server") from None


def _command(
    server: Server, directory: str, path: str, data: Data, file: Path | None, placement: str
) -> list[str]:
    if server.name == "own":
        command = [
            programs.find(PROGRAM), "--task", "store", "--socket", path,
            "--records", str(data.records), "--value", str(data.value),
        ]  # fmt: skip
        if placement:
            command += ["--placement", placement]
        cached = int((1 - data.share) * data.records * data.value)
        return command if file is None else [*command, "--file", str(file), "--cached", str(cached)]
    if server.name == "memcached":
        spill = ["-o", _spill(file, data)] if file is not None else []
        return [
            server.program, "-u", getpass.getuser(), "-s", path, "-a", "0700", "-M", "-c", "20000",
            "-f", "1.05", "-I", str(max(1 << 20, 2 * data.value)),
            "-m", str(_megabytes(data)), *spill,
        ]  # fmt: skip
    return [
        server.program, "--port", "0", "--unixsocket", path, "--dir", directory, "--save", "",
        "--appendonly", "no", "--daemonize", "no",
    ]  # fmt: skip


#: Memory that memcached uses beside values: head and key of a record, the factor by which size
#: classes round up, a record whose value is in the file, and the fixed part.
_HEAD_BYTES, _ROUNDED, _MOVED_BYTES, _ALWAYS_MB = 80, 1.03, 100, 4
#: Smallest memory with which memcached is useful.
_LEAST_MB = 64
#: Share of memory that memcached keeps free to move values, checked once a second. If it is filled
#: faster, no memory is left for the stubs of values in the file. Then no value moves any more, or
#: some are dropped in spite of -M (seen with 1.6.18).
_FREE = 0.1
_LOAD_SECONDS, _LOAD_LEAST = 40, 5000


def _megabytes(data: Data) -> int:
    """Memory for memcached in MiB: all data, or with a file the part that stays in memory."""
    whole = _ROUNDED * (data.value + _HEAD_BYTES)
    if not data.share:
        return 64 + int(1.5 * data.records * whole) // (1 << 20)
    return max(_LEAST_MB, _ALWAYS_MB + int(data.records * _record_bytes(data)) // (1 << 20))


def _record_bytes(data: Data) -> float:
    """Average memory of a record, if a share of the values is in a file."""
    whole = _ROUNDED * (data.value + _HEAD_BYTES)
    return ((1 - data.share) * whole + data.share * _MOVED_BYTES) / (1 - _FREE)


def too_few(server: Server, data: Data) -> str:
    """The reason why less than the share would be in the file; else empty."""
    least = math.ceil(((_LEAST_MB - _ALWAYS_MB) << 20) / _record_bytes(data))
    if server.name != "memcached" or data.records >= least:
        return ""
    return (
        f"memcached keeps {_LEAST_MB} MiB in memory, more than its part of so little; give "
        f"{least} --records or more"
    )


def _spill(file: Path | None, data: Data) -> str:
    """Options for a file with space for four times the data, so that nothing is dropped for lack of
    space."""
    room = max(2, 4 * data.records * (data.value + _HEAD_BYTES) // (1 << 30) + 1)
    least = min(512, data.value // 2)
    return (
        f"ext_path={file}:{room}G,ext_item_size={least},ext_threads=2,"
        f"slab_automove_freeratio={_FREE}"
    )


@contextmanager
def _process(server: Server, command: list[str], directory: Path) -> Iterator[int]:
    log = directory / "log"
    with log.open("wb") as output:
        # In a process group of its own, so that Ctrl-C on a terminal reaches only this process.
        process = subprocess.Popen(
            [programs.find(PROGRAM), "--task", "serve", "--server", str(os.getpid()), "--",
             *command],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0, cwd=directory,
        )  # fmt: skip
    try:
        _await(process, server.program, str(directory / "socket"), log)
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _await(process: subprocess.Popen[bytes], program: str, path: str, log: Path) -> None:
    for _ in range(round(_START_SECONDS / 0.05)):
        with socket.socket(socket.AF_UNIX) as trial:
            try:
                trial.connect(path)
                return
            except OSError:
                pass
        if process.poll() is not None:
            told = programs.last_line(log.read_text(errors="replace"))
            raise headrace.IoError(f"{program} did not start: {told}")
        time.sleep(0.05)
    raise headrace.TimedOutError(f"{program} did not answer within {_START_SECONDS:g} s")
