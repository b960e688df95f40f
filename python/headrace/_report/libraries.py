# SPDX-License-Identifier: Apache-2.0
"""The scripts that draw a page's charts, bundled once for each version of their package."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import re
from pathlib import Path

from markupsafe import Markup

from headrace import Error, _isolated_calls
from headrace._files import cache_directory, read_whole, write_whole

#: The process that holds V8, as errors name it.
WRITER = "the picture writer (vl-convert)"
#: Time limit of the picture writer; the largest picture takes 10 s on an idle machine.
LONGEST_SECONDS = 600.0


@functools.cache
def script() -> Markup:
    """Vega, Vega-Lite and Vega-Embed in one script. The escapes in its strings change no value, and
    keep it from ending its HTML element.
    """
    version = importlib.metadata.version("vl-convert-python")
    kept = cache_directory() / f"vega-{version}.js"
    code = _kept(kept)
    if code is None:
        code = _isolated_calls.call(WRITER, _bundle, seconds=LONGEST_SECONDS)
        _keep(kept, code)
    return Markup(re.sub(r"<(/script|!--)", r"<\\\1", code, flags=re.IGNORECASE))


def _kept(path: Path) -> str | None:
    """The bundle that an earlier report kept, if it is intact: its first line is the digest of the
    rest."""
    try:
        digest, _, code = read_whole(path).decode().partition("\n")
    except (Error, OSError, UnicodeDecodeError, MemoryError):
        return None
    return code if digest == _digest(code) else None


def _keep(path: Path, code: str) -> None:
    """Keeps the bundle, which takes seconds to make. If it cannot be kept, each report makes it
    again."""
    if path.exists() and not path.is_file():  # a pipe that nobody reads
        return
    with contextlib.suppress(Error, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"{_digest(code)}\n{code}")


def _digest(code: str) -> str:
    return "// " + hashlib.sha256(code.encode()).hexdigest()


def _bundle() -> str:
    import vl_convert

    # The stub of vl_convert forgets that the argument has a default.
    return vl_convert.javascript_bundle()  # type: ignore[call-arg]
