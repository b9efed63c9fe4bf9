"""Reads one file of a Delta table's log, by Hadoop's file systems as Delta does: no Spark job."""

from __future__ import annotations

import json
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

NOT_FOUND = "java.io.FileNotFoundException"


def table_folder(session: SparkSession, name: str) -> str:
    """The folder of a table of the catalog."""
    rows = session.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    return next(str(row.data_type) for row in rows if row.col_name == "Location")


def user_metadata(session: SparkSession, path: str) -> str | None:
    """The user metadata of a commit, empty if it has none; None: there is no such file."""
    jvm: Any = session._jvm
    java = jvm.java.io
    file = jvm.org.apache.hadoop.fs.Path(path)
    options = session._jsparkSession.sessionState().newHadoopConf()
    try:
        stream = file.getFileSystem(options).open(file)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() == NOT_FOUND:
            return None
        raise
    lines = java.BufferedReader(java.InputStreamReader(stream, "UTF-8"))
    try:
        while (line := lines.readLine()) is not None:
            info = json.loads(line).get("commitInfo")
            if info is not None:
                return str(info.get("userMetadata") or "")
    finally:
        lines.close()
    return ""
