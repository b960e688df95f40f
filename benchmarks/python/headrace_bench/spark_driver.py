# SPDX-License-Identifier: Apache-2.0
"""Spark in a process of its own: asked by lines of JSON on stdin, answering by lines on the file
descriptor that is its first argument. The first line has the master, the settings and the tables;
every other one a query. It ends when stdin does, and the JVM with it, which has a pipe to us.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from typing import Any, TextIO


def _read(asked: queue.Queue[str]) -> None:
    """Runs in a thread: whoever asks may go while a query runs, and nothing is left to do then."""
    for line in sys.stdin:
        asked.put(line)
    os._exit(0)


def _session(request: dict[str, Any]) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(request["master"]).appName("headrace")
    for name, value in request["settings"].items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    for table, path in request["tables"].items():
        session.read.parquet(path).createOrReplaceTempView(table)
    # Whoever has no CPU for a task is to be found out now, not in the first query.
    session.sql(f"SELECT COUNT(*) FROM {next(iter(request['tables']))}").collect()
    return session


def _begin(request: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    session = _session(request)
    return session, {
        "version": session.version,
        "process": int(session._jvm.java.lang.ProcessHandle.current().pid()),
    }


def _query(session: Any, request: dict[str, Any]) -> dict[str, Any]:
    session.sparkContext.setJobGroup(request["group"], request["group"])
    start = time.monotonic()
    rows = session.sql(request["sql"]).collect()
    seconds = time.monotonic() - start
    return {"seconds": seconds, "answer": [[_cell(cell) for cell in row] for row in rows]}


def _cell(value: Any) -> Any:
    """Decimals as their digits, so that nothing is lost."""
    return value if isinstance(value, int | float | str | None) else str(value)


def _reason(error: BaseException) -> str:
    """One line; of an exception in Java, what began it."""
    text = str(error)
    java = getattr(error, "java_exception", None)
    while java is not None:
        text, java = java.toString(), java.getCause()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _serve(asked: queue.Queue[str], told: TextIO) -> None:
    session: Any = None
    while True:
        request = json.loads(asked.get())
        try:
            if session is None:
                session, answer = _begin(request)
            elif "sql" in request:
                answer = _query(session, request)
            else:  # what was logged is all in its file then
                session.stop()
                answer = {}
        except Exception as error:
            answer = {"error": _reason(error)}
        told.write(json.dumps(answer) + "\n")
        told.flush()


if __name__ == "__main__":
    requests: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    with os.fdopen(int(sys.argv[1]), "w") as told:
        _serve(requests, told)
