from __future__ import annotations

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from coordinator_udf.streaming.shard_keys import partition_of, shard_key, spark_hash


def test_the_hash_is_sparks(spark: SparkSession) -> None:
    keys = [shard_key(partition) for partition in (*range(50), 2**31 - 1)]
    rows = spark.createDataFrame([(key,) for key in keys], "shard bigint").select(f.hash("shard")).collect()
    ours = [int(spark_hash(partition_of(key), np.array([key >> 32], np.uint32))[0]) for key in keys]
    assert ours == [row[0] for row in rows]
