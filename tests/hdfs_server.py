"""An HDFS that runs here, a namenode and a datanode of Hadoop's own, as a storage that many machines see."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

import pyspark

from scripts.ports import free_port
from tests.conftest import ROOT
from tests.gateway.clients.built import built_jars
from tests.waiting import wait

_JAVA = ("java", "-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_ANY = "127.0.0.1:0"


@contextmanager
def hdfs_server(directory: Path) -> Iterator[str]:
    """The file system's URI; there is one datanode, and a block has one replica."""
    jars = f"{built_jars('hdfs', ROOT / 'tests' / 'spark' / 'hdfs')}/*:{Path(pyspark.__path__[0]) / 'jars'}/*"
    uri, web = f"hdfs://127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    settings = {
        "fs.defaultFS": uri,
        "dfs.namenode.name.dir": f"file://{directory}/name",
        "dfs.namenode.http-address": web,
        "dfs.namenode.safemode.extension": 0,
        "dfs.datanode.data.dir": f"file://{directory}/data",
        "dfs.datanode.address": _ANY,
        "dfs.datanode.http.address": _ANY,
        "dfs.datanode.ipc.address": _ANY,
        "dfs.replication": 1,
    }
    properties = "".join(
        f"<property><name>{name}</name><value>{escape(str(value))}</value></property>"
        for name, value in settings.items()
    )
    conf = directory / "conf"
    conf.mkdir()
    for name in ("core-site.xml", "hdfs-site.xml"):
        (conf / name).write_text(f"<configuration>{properties}</configuration>")
    java = [*_JAVA, f"-Dhadoop.log.dir={directory}", "-cp", f"{conf}:{jars}"]
    subprocess.run([*java, _NAMENODE, "-format", "-nonInteractive"], check=True, capture_output=True, timeout=120)
    with ExitStack() as servers:
        log = servers.enter_context((directory / "log").open("wb"))
        for main in (_NAMENODE, _DATANODE):
            server = subprocess.Popen([*java, main], stdout=log, stderr=log)
            servers.callback(server.wait)
            servers.callback(server.kill)
        wait(lambda: _has_datanode(web), "the namenode has a datanode", timeout_s=240)
        yield uri


def _has_datanode(web: str) -> bool:
    state = f"http://{web}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
    try:
        with urllib.request.urlopen(state) as answer:
            return b'"NumLiveDataNodes" : 1' in answer.read()
    except OSError:
        return False
