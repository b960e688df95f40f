"""How the report gets into its file: whole or not at all, and no text in it ends a script."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from headrace._errors import error_of


def json_for_script(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(value).replace("<", "\\u003c")


def code_for_script(code: str) -> str:
    """JavaScript that cannot end its script element; in its strings an escape changes nothing."""
    return re.sub(r"<(/script|!--)", r"<\\\1", code, flags=re.IGNORECASE)


def write_whole(path: Path, content: bytes) -> None:
    """All of the file or nothing: what was there before stays until the new one is complete."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            # mkstemp's files are their owner's only; a report is to be shown.
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise error_of(error, f"cannot write {path}", "another file") from None
