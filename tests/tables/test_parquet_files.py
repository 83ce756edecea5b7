"""Files that tasks wrote of tables, as they are read back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from coordinator_udf.tables.parquet_files import TableFile, TableFiles, Wanted, read_shard
from schemas.tables import table_arrow

TABLE = "group_responses"


def test_of_a_shard_no_file_is_opened_that_has_none_of_its_rows(tmp_path: Path) -> None:
    files = [written(tmp_path, partitions) for partitions in ((0, 1), (2,), (1, 3), (4,))]
    (tmp_path / TABLE / files[1].name).unlink()
    (tmp_path / TABLE / files[3].name).unlink()
    for partition, seqs in ((0, [0]), (1, [1, 1]), (3, [3]), (5, [])):
        shard = read_shard(str(tmp_path), {TABLE: files}, partition, {TABLE: Wanted(("seq", "partition"))})
        assert shard[TABLE].to_pydict() == {"seq": seqs, "partition": [partition] * len(seqs)}


def written(out: Path, partitions: tuple[int, ...]) -> TableFile:
    """A file with a row of each partition, whose number is its ``seq``, too."""
    schema = table_arrow(TABLE)
    blank = {field.name: "" if pa.types.is_string(field.type) else 0 for field in schema if not field.nullable}
    rows = [blank | {"partition": number, "seq": number} for number in partitions]
    files = TableFiles(out)
    files.write({TABLE: pa.Table.from_pylist(rows, schema)})
    [file] = files.close()
    return file
