"""The home for Spark that scripts/setup makes."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest

from coordinator_udf.tables import spark_home
from coordinator_udf.tables.spark_home import make_spark_home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    monkeypatch.setattr(spark_home, "SPARK_HOME", place)
    return place


def test_it_has_sparks_jars_and_of_deltas_those_that_spark_has_not_and_no_zip_file(home: Path, tmp_path: Path) -> None:
    theirs = {jar.name for jar in Path(pyspark.__path__[0], "jars").glob("*.jar")}
    ours = [tmp_path / name for name in ("io.delta_delta-new-1.0.jar", "org.slf4j_slf4j-api-1.0.jar")]
    for jar in ours:
        jar.touch()
    for _ in range(2):
        make_spark_home(ours)
        assert spark_home.spark_home() == home
        made = {jar.name for jar in home.joinpath("jars").iterdir()}
        assert made == theirs | {"io.delta_delta-new-1.0.jar"}
        assert all(jar.is_file() for jar in home.joinpath("jars").iterdir())
        assert (home / "bin" / "spark-submit").is_file()
        # Workers would compile what they import from it, each anew.
        assert not (home / "python").exists()


def test_one_whose_jars_are_gone_is_none(home: Path, tmp_path: Path) -> None:
    jar = tmp_path / "io.delta_delta-new-1.0.jar"
    jar.touch()
    make_spark_home([jar])
    assert spark_home.spark_home() == home
    jar.unlink()
    assert spark_home.spark_home() is None


def test_one_of_another_pyspark_is_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert spark_home.spark_home() is None
    make_spark_home([])
    monkeypatch.setattr(pyspark, "__version__", "0.0")
    assert spark_home.spark_home() is None
