"""A Spark session with Delta, started by Python or by spark-submit alike."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from delta import configure_spark_with_delta_pip
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from coordinator_udf import stopping
from coordinator_udf.tables.spark_home import SPARK_HOME, make_spark_home, spark_home
from coordinator_udf.user_errors import UserError

#: What Delta needs in every session.
DELTA_SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

#: Tables at ``s3://`` are delta-rs' and Spark's alike; Hadoop knows that storage as ``s3a://`` alone.
HADOOP_SETTINGS: Final = {"fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}

#: What a session of this machine alone has where nothing else is said: quiet, and not to be reached from elsewhere.
LOCAL_SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A table's list of files is short: no need to compute it in 50 tasks.
    "spark.databricks.delta.snapshotPartitions": "2",
}

LOGGING_CONF: Final = Path(__file__).resolve().parents[2] / "conf" / "log4j2.properties"

#: Spark's classes as the JVM has them in memory, made by scripts/setup: half of a session's start is loading them.
CLASS_ARCHIVE: Final = Path(sys.prefix) / "spark-classes.jsa"
_QUIET_ARCHIVE: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"

#: A home of Java whose `java` starts Spark's driver as a command needs it.
DRIVER_JAVA: Final = Path(__file__).resolve().parent / "java"

#: Where scripts/setup keeps the paths of Delta's jars, one a line, and of those of Spark's source of Kafka topics.
RESOLVED_JARS: Final = Path(sys.prefix) / "delta-jars"
KAFKA_JARS: Final = Path(sys.prefix) / "kafka-jars"

#: Spark's source of Kafka topics, and what it needs beside what Spark brings. The token provider is of another release,
#: since that of 4.2.0 was never published; it is used for delegation tokens only.
_KAFKA_PACKAGES: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)


def delta_session(
    app_name: str,
    settings: Mapping[str, str] | None = None,
    *,
    with_kafka: bool = False,
    jvm_options: Sequence[str] = (),
) -> SparkSession:
    """Returns a session that can read and write Delta tables.

    Under spark-submit, its ``--packages`` brings Delta's jars. Else they are those that scripts/setup resolved, or
    Spark resolves them now. Workers of a local session run the Python that runs this.

    Args:
        app_name: how Spark shows the job.
        settings: Spark settings; they win over those that spark-submit was given.
        with_kafka: whether Kafka topics are to be read.
        jvm_options: for the JVM of a local session, where the settings don't say what it gets.

    Raises:
        UserError: Spark's source of Kafka topics isn't there.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    submitted = is_submitted()
    hadoop = {f"spark.hadoop.{name}": value for name, value in HADOOP_SETTINGS.items()}
    local = {} if submitted else _local(settings or {}, jvm_options)
    settings = {"spark.app.name": app_name, **hadoop, **local, **DELTA_SETTINGS, **(settings or {})}
    builder = SparkSession.Builder()
    jars: str | None = ""
    if not submitted:
        jars = _jars(is_at_home=_has_delta_at_home(settings), with_kafka=with_kafka)
        more_jars, more_packages = (settings.get(name, "") for name in ("spark.jars", "spark.jars.packages"))
        if jars is None:
            builder = configure_spark_with_delta_pip(builder, [name for name in more_packages.split(",") if name])
        elif jars:
            settings["spark.jars"] = ",".join(filter(None, (jars, more_jars)))
    for name, value in settings.items():
        builder = builder.config(name, value)
    # A JVM that comes up when nobody waits for it says so at length.
    with stopping.deferred(), _driver_java(submitted=submitted):
        if jars is not None:
            SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
            # Else Ctrl-C is PySpark's until there is a session, whose handler asks the JVM in the midst of a question.
            stopping.take_back()
        session = builder.getOrCreate()
    stopping.first_end(lambda: stop_session(session))
    return session


def is_submitted() -> bool:
    """Returns whether spark-submit started this process, which has a JVM and executors for it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def _driver_java(*, submitted: bool) -> Iterator[None]:
    """Lets Spark start its driver with the `java` of this package."""
    if submitted or not os.access(DRIVER_JAVA / "bin" / "java", os.X_OK):
        yield
        return
    home = os.environ.get("JAVA_HOME")
    os.environ["MUSTER_JAVA"] = f"{home}/bin/java" if home else "java"
    os.environ["JAVA_HOME"] = str(DRIVER_JAVA)
    try:
        yield
    finally:
        del os.environ["JAVA_HOME"], os.environ["MUSTER_JAVA"]
        if home is not None:
            os.environ["JAVA_HOME"] = home


def stop_session(session: SparkSession) -> None:
    """Ends a session without a word, whose work is done or cut off: tasks that fail then nobody needs to hear of.

    What Spark's parts still ask each other finds nobody: it warns that a heartbeat waited in vain for its answer, and
    where the threads are gone that forget broadcasts, Scala prints a stack trace past any log.
    """
    session.sparkContext.setLogLevel("OFF")
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001
    jvm.java.lang.System.setErr(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))
    session.stop()


def _jars(*, is_at_home: bool, with_kafka: bool) -> str | None:
    """Returns the jars that a session needs beside Spark's, as its setting ``spark.jars`` wants them.

    Returns None to resolve Delta's.

    Args:
        is_at_home: whether Spark has Delta's.
        with_kafka: whether Kafka topics are to be read.

    Raises:
        UserError: Spark's source of Kafka topics isn't there.
    """
    delta = "" if is_at_home else resolved_jars()
    if not with_kafka:
        return delta
    kafka = _paths(KAFKA_JARS)
    if delta is None or kafka is None:
        raise UserError("Spark's source of Kafka topics isn't there; scripts/setup fetches it")
    return ",".join(filter(None, (delta, kafka)))


def _has_delta_at_home(settings: Mapping[str, str]) -> bool:
    """Returns whether the session's Spark is that of `spark_home`, which is taken where nobody names another."""
    home = spark_home()
    if home is None or not settings.get("spark.master", "local").startswith("local"):
        return False
    return os.environ.setdefault("SPARK_HOME", str(home)) == str(home)


def _local(settings: Mapping[str, str], jvm_options: Sequence[str]) -> dict[str, str]:
    if not settings.get("spark.master", "local").startswith("local"):
        return {}
    # Else Spark warns, on a machine whose name is a loopback address, that it takes another.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    options = list(jvm_options)
    if LOGGING_CONF.is_file():
        options.append(f"-Dlog4j2.configurationFile={LOGGING_CONF.as_uri()}")
    if CLASS_ARCHIVE.is_file():
        # One that is of another JVM or other jars is left alone, and classes are loaded from these.
        options += [f"-XX:SharedArchiveFile={CLASS_ARCHIVE}", _QUIET_ARCHIVE]
    # Where nobody says where tables without a place go, Spark makes a directory where the command runs.
    warehouse = Path(tempfile.gettempdir()) / f"muster-warehouse-{os.getpid()}"
    atexit.register(shutil.rmtree, warehouse, ignore_errors=True)
    return {
        **LOCAL_SETTINGS,
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.driver.extraJavaOptions": " ".join(options),
    }


def resolved_jars() -> str | None:
    """Finds Delta's jars, as Spark's setting ``spark.jars`` wants them; None where they are not all there."""
    return _paths(RESOLVED_JARS)


def _paths(kept: Path) -> str | None:
    if not kept.is_file():
        return None
    jars = kept.read_text(encoding="utf-8").split()
    return ",".join(jars) if jars and all(Path(jar).is_file() for jar in jars) else None


def resolve_jars() -> None:
    """Has Spark resolve the jars of Delta and of its Kafka source into its Ivy cache, and makes a home with the former.

    Where they are is remembered.
    """
    RESOLVED_JARS.unlink(missing_ok=True)
    KAFKA_JARS.unlink(missing_ok=True)
    shutil.rmtree(SPARK_HOME, ignore_errors=True)
    spark = delta_session("muster-setup", {"spark.master": "local[1]"})
    jars = [jar.removeprefix("file://") for jar in spark.conf.get("spark.jars", "").split(",")]  # type: ignore[union-attr]
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    resolve = jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies
    found = [
        resolve(jvm.java.net.URI(f"ivy://{package}?transitive=false")).mkString(",") for package in _KAFKA_PACKAGES
    ]
    spark.stop()
    for kept, paths in ((RESOLVED_JARS, jars), (KAFKA_JARS, found)):
        kept.write_text("".join(f"{jar}\n" for jar in paths), encoding="utf-8")
    make_spark_home(map(Path, jars))


def settings_to_archive(draft: Path, jvm_options: Sequence[str]) -> dict[str, str]:
    """Returns settings of a session whose JVM keeps the classes that it has loaded in a file, when it ends.

    Args:
        jvm_options: with which that JVM runs, too.
    """
    options = [*jvm_options, f"-XX:ArchiveClassesAtExit={draft}", _QUIET_ARCHIVE]
    return {"spark.master": "local[2]", "spark.driver.extraJavaOptions": " ".join(options)}


def end_jvm(spark: SparkSession, timeout_s: float) -> None:
    """Ends a session and its JVM, and waits until the JVM is gone."""
    jvm: Any = spark.sparkContext._gateway  # noqa: SLF001
    spark.stop()
    # The JVM ends with its standard input.
    jvm.shutdown()
    jvm.proc.stdin.close()
    jvm.proc.wait(timeout_s)
