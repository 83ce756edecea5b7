from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator_udf.tables.delta import OutputTables
from coordinator_udf.tables.outputs import OutputRows, Outputs
from coordinator_udf.tables.rows import to_tables

ROWS = 1_000


def test_files_of_a_micro_batch_are_compressed_and_have_no_dictionaries_of_what_differs(tmp_path: Path) -> None:
    columns = {"request_id": pa.array([f"r{number}" for number in range(ROWS)])}
    columns["member_id"] = pa.array([f"member-{number}" for number in range(ROWS)])
    same = {"source": "live", "partition": 0, "ts": 1_000, "api": "Heartbeat", "api_version": 4, "error_code": 0}
    answers = OutputRows("responses", ROWS, columns, {**same, "group_id": "g"}, 0, {"answered_by": "request_id"})
    tables = OutputTables(str(tmp_path))
    assert tables.write(to_tables(Outputs.of([answers])), "query", 0) == 1
    (file,) = (tmp_path / "group_responses").glob("*.parquet")
    stored = pq.ParquetFile(file)
    assert stored.read(["request_id"]).column("request_id").to_pylist() == columns["request_id"].to_pylist()
    group = stored.metadata.row_group(0)
    found = {group.column(place).path_in_schema: group.column(place) for place in range(group.num_columns)}
    assert {column.compression for column in found.values()} == {"SNAPPY"}
    with_dictionary = {name for name, column in found.items() if "RLE_DICTIONARY" in column.encodings}
    assert with_dictionary.isdisjoint({"seq", "request_id", "answered_by", "member_id"})
    assert {"group_id", "api"} <= with_dictionary
    tables.close()
