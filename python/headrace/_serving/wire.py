# SPDX-License-Identifier: Apache-2.0
"""The messages between a server and its clients, and where the socket is.

Sockets keep the limits of messages (SOCK_SEQPACKET). A message is a JSON object in one line, then
keys of 16 bytes. An answer is a JSON object; `there` has a 1 for each key that has its block.

The first message of a connection names the version and the blocks of the client. Its answer brings
descriptors: the connection's staging memory, the index, and the memory of the store if it has any.
Blocks of "get" and "put" lie in the staging memory, in the order of their keys.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace._core import DeniedError, Error, InvalidError, IoError
from headrace._errors import error_of, kind_of

#: Keys of one message: 64 KiB of them, which a socket takes at once.
MOST_KEYS = 4096
#: Bytes of the staging memory of a connection, at least one block.
STAGING_BYTES = 32 << 20
MESSAGE_BYTES = 4096 + 16 * MOST_KEYS
#: Nobody can cut or extend the staging memory, so no access to it ends a process.
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_CREDENTIALS = struct.Struct("3i")


def socket_of(name: str) -> Path:
    """The path of a server's socket: `name` itself if it has a slash, else below the user's own
    folder of running programs. Error: that folder cannot be made, or others may write to it.
    """
    if "\0" in name or name in ("", ".", ".."):
        raise InvalidError(f"no name of a server: {name!r}; give a word, or the path of its socket")
    if "/" in name:
        return Path(name).absolute()
    running = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(running, "headrace") if running else Path(f"/tmp/headrace-{os.geteuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise error_of(error, f"cannot make the folder {folder}", "a path as the name") from None
    if status.st_uid != os.geteuid() or status.st_mode & 0o022 or folder.is_symlink():
        raise DeniedError(
            f"others may write {folder}, so no server is there; give a path as the name"
        )
    return folder / f"{name}.socket"


@contextmanager
def address(path: Path) -> Iterator[str]:
    """The address of a socket that fits into its 107 bytes."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def peer_uid(connection: socket.socket) -> int:
    """The user of the process at the other end."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def timeout(seconds: float) -> bytes:
    """For SO_RCVTIMEO and SO_SNDTIMEO. A timeout of Python's own makes MSG_DONTWAIT wait."""
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))


def message(what: dict[str, Any], keys: Sequence[bytes] = ()) -> bytes:
    return b"\n".join((json.dumps(what).encode(), b"".join(keys)))


def parsed(received: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Parses a message. ValueError: it is none."""
    header, _, rest = received.partition(b"\n")
    what = json.loads(header)
    if not isinstance(what, dict) or len(rest) % 16:
        raise ValueError("no message of a client")
    return what, [rest[at : at + 16] for at in range(0, len(rest), 16)]


def refusal(error: Error) -> bytes:
    return message({"error": error.code, "message": str(error)})


def answer(received: bytes) -> dict[str, Any]:
    """Parses the answer of a server. Raises the server's error."""
    if not received:
        raise ConnectionError("the server has ended")
    try:
        what, _ = parsed(received)
    except ValueError:
        raise IoError("the server gave no answer of this version") from None
    if "error" in what:
        raise kind_of(str(what["error"]))(str(what["message"]))
    return what
