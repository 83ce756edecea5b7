"""A home for Spark in this environment: the installed one, with Delta's jars, and without PySpark in a zip file.

Workers would import PySpark from that file, of which Python keeps no bytecode: each process of a start would compile
it, half a second of CPU time. Delta's jars lie on the JVM's class path so, whose classes can be archived.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyspark

SPARK_HOME: Final = Path(sys.prefix) / "spark-home"

#: Says of which PySpark it is.
_VERSION: Final = "version"

#: What stands before the version in a jar's name, and as Ivy names it before that: the organisation.
_ARTIFACT: Final = re.compile(r"-\d.*")


def spark_home() -> Path | None:
    """Returns the home that scripts/setup made.

    Returns None where there is none, or one of another PySpark or whose jars are gone.
    """
    version = SPARK_HOME / _VERSION
    if not version.is_file() or version.read_text(encoding="utf-8") != pyspark.__version__:
        return None
    return SPARK_HOME if all(jar.exists() for jar in (SPARK_HOME / "jars").iterdir()) else None


def make_spark_home(jars: Iterable[Path]) -> None:
    """Makes the home anew.

    Args:
        jars: Delta's, by the names that Ivy gives them; those that Spark has itself are left out.
    """
    installed = Path(pyspark.__path__[0])
    shutil.rmtree(SPARK_HOME, ignore_errors=True)
    (SPARK_HOME / "jars").mkdir(parents=True)
    for name in ("bin", "conf"):
        if (installed / name).is_dir():
            (SPARK_HOME / name).symlink_to(installed / name)
    theirs = sorted((installed / "jars").glob("*.jar"))
    known = {_ARTIFACT.sub("", jar.name) for jar in theirs}
    more = [jar for jar in jars if _ARTIFACT.sub("", jar.name.partition("_")[2]) not in known]
    for jar in (*theirs, *more):
        (SPARK_HOME / "jars" / jar.name).symlink_to(jar)
    # Last, so that half a home is none.
    (SPARK_HOME / _VERSION).write_text(pyspark.__version__, encoding="utf-8")
