# SPDX-License-Identifier: Apache-2.0
"""The part of PySpark that headrace asks, answering by DuckDB: for tests without Java. FAKE_SPARK
says what goes wrong: "wrong" (an answer), "hang" (a query), "fail" (the start), "end" (the driver).
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb

_WRONG = os.environ.get("FAKE_SPARK", "")


class _Rows:
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def collect(self) -> list[Any]:
        return self.rows


class _Context:
    def __init__(self) -> None:
        self.groups: list[str] = []

    def setJobGroup(self, group: str, description: str) -> None:
        self.groups.append(group)


class _Session:
    version = "0.0"

    def __init__(self, settings: dict[str, str]) -> None:
        if _WRONG == "fail":
            raise RuntimeError("\nno space for blocks\nat java")
        self.settings = settings
        self.database = duckdb.connect()
        self.sparkContext = _Context()
        handle = SimpleNamespace(current=lambda: SimpleNamespace(pid=os.getpid))
        self._jvm = SimpleNamespace(
            java=SimpleNamespace(lang=SimpleNamespace(ProcessHandle=handle))
        )
        self.read = self
        if _WRONG == "hang":  # as the JVM: a process of ours, in our group
            self.child = subprocess.Popen(["sleep", "600"])
            Path(settings["spark.local.dir"], "child").write_text(str(self.child.pid))

    def parquet(self, path: str) -> Any:
        def view(name: str) -> None:
            self.database.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{path}')")

        return SimpleNamespace(createOrReplaceTempView=view)

    def sql(self, text: str) -> _Rows:
        first = "COUNT(*)" in text  # is asked when Spark starts
        if _WRONG == "hang":
            time.sleep(600)
        if _WRONG == "end" and not first:
            os._exit(3)
        rows = self.database.execute(text).fetchall()
        return _Rows([*rows, ("x",)] if _WRONG == "wrong" else rows)

    def stop(self) -> None:
        fraction = float(self.settings.get("spark.memory.fraction", 0))
        heap = int(self.settings["spark.driver.memory"].removesuffix("m"))
        spilled = round(fraction * (heap - 300))  # as if it were what tasks have, in MiB
        log = Path(self.settings["spark.eventLog.dir"].removeprefix("file:"), "local-1")
        with log.open("w") as file:
            for stage, group in enumerate(self.sparkContext.groups):
                started = {
                    "Event": "SparkListenerJobStart", "Stage IDs": [stage],
                    "Properties": {"spark.jobGroup.id": group},
                }  # fmt: skip
                ended = {
                    "Event": "SparkListenerTaskEnd", "Stage ID": stage,
                    "Task Metrics": {
                        "Executor CPU Time": 1_500_000_000, "JVM GC Time": 250,
                        "Memory Bytes Spilled": 2 * spilled, "Disk Bytes Spilled": spilled,
                        "Shuffle Write Metrics": {"Shuffle Bytes Written": 4096},
                    },
                }  # fmt: skip
                for event in (started, ended, ended):
                    file.write(json.dumps(event) + "\n")
            file.write('{"Event": "cut')


class _Builder:
    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def master(self, url: str) -> _Builder:
        return self

    def appName(self, name: str) -> _Builder:
        return self

    def config(self, name: str, value: str) -> _Builder:
        self.settings[name] = value
        return self

    def getOrCreate(self) -> _Session:
        return _Session(self.settings)


class SparkSession:
    builder = _Builder()
