# SPDX-License-Identifier: Apache-2.0
"""Files that results are written to and documents read from: what they are, they stay."""

from __future__ import annotations

import errno
import json
import os
import pwd
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import report_documents
from conftest import Run

import headrace
from headrace import _files
from headrace._files import check_writable, read_whole, write_whole


def test_a_file_is_replaced_with_its_mode_and_owner(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    before = path.stat()
    write_whole(path, "new")
    after = path.stat()
    assert path.read_text() == "new" and after.st_ino != before.st_ino
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode, before.st_uid, before.st_gid
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("there", [True, False], ids=["a file", "no file yet"])
def test_a_link_stays_and_its_target_is_written(tmp_path: Path, there: bool) -> None:
    (tmp_path / "folder").mkdir()
    target = tmp_path / "folder" / "file"
    if there:
        target.write_text("old")
    link = tmp_path / "link"
    link.symlink_to("folder/file")
    check_writable(link)
    write_whole(link, "new")
    assert link.is_symlink() and not target.is_symlink()
    assert target.read_text() == "new"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()))
    reader.start()
    check_writable(path)
    write_whole(path, b"text")
    reader.join(30)
    assert found == [b"text"] and stat.S_ISFIFO(path.stat().st_mode)


def test_a_device_is_written_to(tmp_path: Path) -> None:
    path = tmp_path / "null"
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        path.open("wb").close()
    except PermissionError:
        pytest.skip("only root makes devices, where the file system has them")
    check_writable(path)
    write_whole(path, b"text")
    assert stat.S_ISCHR(path.stat().st_mode) and list(tmp_path.iterdir()) == [path]


def test_a_page_for_nobody(run: Run, tmp_path: Path) -> None:
    """report --html /dev/null, with a device that may be lost."""
    (tmp_path / "demo.json").write_text(json.dumps(report_documents.whole() | {"kind": "demo"}))
    try:
        os.mknod(tmp_path / "page", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        (tmp_path / "page").open("wb").close()
    except PermissionError:
        pytest.skip("only root makes devices, where the file system has them")
    result = run("report", "demo.json", "--html", "page")
    assert (result.returncode, result.stderr) == (0, "")
    assert stat.S_ISCHR((tmp_path / "page").stat().st_mode)
    assert {path.name for path in tmp_path.iterdir()} == {"demo.json", "page"}


def test_a_name_as_long_as_names_get(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 255)
    check_writable(path)
    write_whole(path, "text")
    assert path.read_text() == "text"
    with pytest.raises(headrace.InvalidError, match="too long"):
        check_writable(tmp_path / ("a" * 256))


#: A file of the host in a container: a mount point of its own.
IN_A_CONTAINER = """
import ctypes, sys
from pathlib import Path
from headrace._files import check_writable, write_whole
outside, inside = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
new_namespace, private, bind = 0x20000, 1 << 18 | 1 << 14, 1 << 12
if libc.unshare(new_namespace) or libc.mount(b"none", b"/", None, private, None) or \\
        libc.mount(outside.encode(), inside.encode(), None, bind, None):
    sys.exit(77)
check_writable(Path(inside))
write_whole(Path(inside), "new")
"""


def test_a_mount_point_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("old and longer")
    (tmp_path / "inside").touch()
    arguments = [sys.executable, "-c", IN_A_CONTAINER, "outside", "inside"]
    result = subprocess.run(arguments, cwd=tmp_path, timeout=60)
    if result.returncode == 77:
        pytest.skip("no mounts of one's own here")
    assert result.returncode == 0 and (tmp_path / "outside").read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 2


def _refuse(monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(f"headrace._files.{call}", refuse)


@pytest.mark.parametrize(
    ("call", "number"),
    [("tempfile.mkstemp", errno.EACCES), ("Path.replace", errno.EPERM),
     ("Path.replace", errno.EXDEV), ("Path.replace", errno.EROFS)],
)  # fmt: skip
def test_a_file_that_is_not_replaced_is_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    path = tmp_path / "a"
    path.write_text("old and longer")
    _refuse(monkeypatch, call, number)
    write_whole(path, "new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(headrace.Error):
        write_whole(tmp_path / "b", "new")


@pytest.mark.parametrize("call", ["tempfile.mkstemp", "os.fsync"])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    _refuse(monkeypatch, call, errno.ENOSPC)
    with pytest.raises(headrace.ExhaustedError, match="No space left"):
        write_whole(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("stream", "mode"), [("stdout", "w"), ("stderr", "a")])
def test_the_commands_own_output_is_not_opened_again(
    command: Path, tmp_path: Path, stream: str, mode: str
) -> None:
    path = tmp_path / "out"
    path.write_text("precious\n")
    with path.open(mode) as file:
        file.write("before\n")
        file.flush()
        arguments = ["export", "xeon-max", "--as", "csv", "--out", f"/dev/{stream}"]
        streams: dict[str, Any] = {stream: file}
        subprocess.run([command, *arguments], **streams, check=True, timeout=60)
        file.write("after\n")
    kept = "precious\n" if mode == "a" else ""
    text = path.read_text()
    assert text.startswith(f"{kept}before\nexperiment,") and text.endswith("\nafter\n")


def test_a_file_without_a_name_is_written_to() -> None:
    handle = os.memfd_create("results")
    os.write(handle, b"old and longer")
    write_whole(Path(f"/dev/fd/{handle}"), "new")
    assert os.pread(handle, 100, 0) == b"new"
    os.close(handle)


def test_without_room_in_place_the_old_content_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    _refuse(monkeypatch, "_put_in_place", errno.EBUSY)
    write_whole(path, "n")
    assert path.read_text() == "n"
    _refuse(monkeypatch, "os.posix_fallocate", errno.ENOSPC)
    with pytest.raises(headrace.ExhaustedError):
        write_whole(path, "longer")
    assert path.read_text() == "n"


@pytest.mark.parametrize(
    ("xdg", "home", "expected"),
    [("/x", "/h", "/x/headrace"), ("x", "/h", "/h/.cache/headrace"),
     ("", "/h", "/h/.cache/headrace"), ("", "", None)],
)  # fmt: skip
def test_where_files_are_kept(
    xdg: str, home: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    monkeypatch.setenv("HOME", home)
    own = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".cache" / "headrace"
    assert _files.cache_directory() == (own if expected is None else Path(expected))


#: A program that prints a profile by its name among other things.
PRINTS = """
import headrace
print("before")
headrace.Profile.load("xeon-max").save("/dev/stdout")
print("after")
"""


def test_a_programs_own_output_is_not_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("w") as file:
        subprocess.run([sys.executable, "-c", PRINTS], stdout=file, check=True, timeout=60)
    first, *document, last = path.read_text().splitlines()
    assert (first, last) == ("before", "after")
    assert headrace.Profile.from_json("\n".join(document)).machine.name == "xeon-max"


def test_results_are_saved_by_one_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = headrace.Profile.load("xeon-max")
    link = tmp_path / "link"
    link.symlink_to("file")
    profile.save(link)
    assert link.is_symlink() and (tmp_path / "file").read_text() == profile.to_json()
    _refuse(monkeypatch, "_replace", errno.ENOSPC)
    with pytest.raises(headrace.ExhaustedError, match="cannot write .*: No space left"):
        profile.save(link)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pipe", "no regular file"),
        ("empty", "is empty"),
        ("huge", "larger than any"),
        (".", "no regular file"),
        ("/dev/zero", "no regular file"),
        ("/proc/kmsg", "is empty"),
    ],
)
def test_only_files_with_an_end_are_read(tmp_path: Path, name: str, words: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(_files.LARGEST_DOCUMENT + 1)
    with pytest.raises(headrace.InvalidError, match=words):
        read_whole(tmp_path / name)


def test_one_bound_for_all_documents(tmp_path: Path) -> None:
    assert _files.LARGEST_DOCUMENT == 64 << 20
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(_files.LARGEST_DOCUMENT + 1)
    with pytest.raises(headrace.InvalidError, match="64 MiB"):
        headrace.Profile.load(path)
