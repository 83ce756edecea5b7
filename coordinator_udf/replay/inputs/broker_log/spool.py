"""A broker's log on disk, entry by entry in its order: a log that is too long for the memory is read in portions."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from coordinator_udf.replay.inputs.broker_log.columns import ColumnBuilder, ColumnFiles, Stretch
from coordinator_udf.replay.inputs.broker_log.line import MARK, Entry
from coordinator_udf.replay.inputs.broker_log.numbers_on_disk import ColumnOnDisk, parts_of
from coordinator_udf.replay.inputs.broker_log.order import Order, in_order
from coordinator_udf.replay.inputs.broker_log.portion import NONE, SEVERAL, asks
from coordinator_udf.replay.inputs.broker_log.reader import LineParser
from coordinator_udf.replay.inputs.broker_log.traces import Traces
from coordinator_udf.replay.inputs.cut_lines import whole_lines
from coordinator_udf.replay.inputs.text_lines import Line, read_all_lines
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import Rejection

T = TypeVar("T")
R = TypeVar("R")
#: Does some work for each item, several at once, and gives the results in the items' order.
Mapped = Callable[[Callable[[T], R], Iterable[T]], Iterator[R]]

#: So many lines are read at once.
BLOCK_LINES: Final = 4_000

_INDEX: Final = np.dtype([(name, np.int64) for name in ("start", "length", "number", "written_us", "log_ts", "asks")])
Rows = NDArray[np.void]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry).decode


class Block(NamedTuple):
    """Some lines of a file, to be read."""

    lines: list[Line | Rejection]
    options: ReplayOptions


class ReadBlock(NamedTuple):
    """Lines that were read: their entries one behind the other, and what is known of them."""

    entries: bytes
    lengths: bytes
    stretch: Stretch
    traces: Traces
    rejections: list[Rejection]
    notes: Counter[str]


class Spooled(NamedTuple):
    """A log that was put on disk: the order of its lines, what they tell, and what couldn't be understood."""

    spool: Spool
    order: Order
    traces: Traces
    rejections: list[Rejection]
    notes: Counter[str]


class Spool:
    """The entries of a log on disk."""

    def __init__(self, directory: Path) -> None:
        """Opens what `write_spool` wrote."""
        self._entries = directory / "entries"
        self._index = ColumnOnDisk(directory / "index", _INDEX)

    def __len__(self) -> int:
        return len(self._index)

    def all(self) -> Iterator[Entry]:
        """Returns all entries in order."""
        return self._read(lambda rows: np.ones(len(rows), bool))

    def that_ask_several(self) -> Iterator[Entry]:
        """Returns the entries that may ask several shards, in order."""
        return self._read(lambda rows: rows["asks"] == SEVERAL)

    def lines_of_shards(self, partitions: int) -> NDArray[np.int64]:
        """Returns how many lines ask each shard."""
        counts = np.zeros(partitions, np.int64)
        for part in parts_of(len(self)):
            hashes = self._index[part]["asks"]
            counts += np.bincount(hashes[hashes >= 0] % partitions, minlength=partitions)
        return counts

    def of_shards(
        self, partitions: int, mine: Collection[int], touched: Mapping[int, Sequence[Sequence[int]]]
    ) -> Iterator[Entry]:
        """Returns the entries that ask some shards, or several, or end a transaction in one of them; in order.

        Args:
            touched: by the numbers of lines that end transactions, the shards that are told so.
        """
        own = set(mine)
        ends = [number for number, shards in touched.items() if any(not own.isdisjoint(each) for each in shards)]

        def wanted(rows: Rows) -> NDArray[np.bool]:
            hashes = rows["asks"]
            asked = (hashes >= 0) & np.isin(hashes % partitions, list(mine))
            found: NDArray[np.bool] = asked | (hashes == SEVERAL) | ((hashes == NONE) & np.isin(rows["number"], ends))
            return found

        return self._read(wanted)

    def _read(self, wanted: Callable[[Rows], NDArray[np.bool]]) -> Iterator[Entry]:
        with self._entries.open("rb") as file:
            for part in parts_of(len(self)):
                rows = self._index[part]
                for place in np.flatnonzero(wanted(rows)).tolist():
                    start, length, _, written_us, log_ts, _ = rows[place].item()
                    file.seek(start)
                    entry = _decode(file.read(length))
                    entry.written_us, entry.log_ts, entry.rank = written_us, log_ts, part.start + place
                    yield entry


def write_spool(
    paths: Sequence[Path],
    directory: Path,
    options: ReplayOptions,
    mapped: Mapped[Block, ReadBlock],
    say_read: Callable[[int], None],
) -> Spooled | None:
    """Puts a log on disk; None if there is no line that could be read.

    Args:
        directory: where to; it must be there.
        mapped: how blocks are read.
        say_read: gets how many lines were read since it was called last.

    Raises:
        InputError: a file can't be opened.
    """
    traces, rejections, notes = Traces(), list[Rejection](), Counter[str]()
    columns, lengths = ColumnFiles(directory), ColumnOnDisk(directory / "lengths", np.dtype(np.int64))
    lines = 0
    with columns, (directory / "entries").open("wb") as out, (directory / "lengths").open("wb") as lengths_file:
        for block in mapped(read_block, _blocks(paths, options)):
            out.write(block.entries)
            traces.join(block.traces, lines)
            lengths_file.write(block.lengths)
            columns.add(block.stretch)
            lines += len(block.stretch.columns.number)
            rejections += block.rejections
            notes += block.notes
            say_read(len(block.stretch.columns.number) + len(block.rejections))
    found = columns.columns()
    if not lines:
        return None
    order = in_order(found, lambda name, lines: ColumnOnDisk.new(directory / name, lines))
    _write_index(directory, order, lengths)
    return Spooled(Spool(directory), order, traces, rejections, notes)


def _write_index(directory: Path, order: Order, lengths: ColumnOnDisk) -> None:
    starts = ColumnOnDisk.new(directory / "starts", len(lengths))
    end = 0
    for part in parts_of(len(lengths)):
        ends = end + np.cumsum(lengths[part])
        starts[part] = ends - lengths[part]
        end = ends[-1]
    with (directory / "index").open("wb") as out:
        for part in parts_of(len(lengths)):
            places = order.places[part]
            rows = np.empty(len(places), _INDEX)
            rows["start"], rows["length"], rows["log_ts"] = starts[places], lengths[places], order.log_ts[places]
            for name in ("number", "written_us", "asks"):
                rows[name] = getattr(order.columns, name)[places]
            out.write(rows.tobytes())


def _blocks(paths: Sequence[Path], options: ReplayOptions) -> Iterator[Block]:
    lines: list[Line | Rejection] = []
    for line in whole_lines(read_all_lines(paths)):
        lines.append(line)
        # What follows on another logger's line may go on with it.
        if len(lines) >= BLOCK_LINES and (isinstance(line, Rejection) or MARK in line.text):
            yield Block(lines, options)
            lines = []
    if lines:
        yield Block(lines, options)


def read_block(block: Block) -> ReadBlock:
    """Reads some lines."""
    parser, columns, traces = LineParser(block.options), ColumnBuilder(), Traces()
    entries, lengths = bytearray(), array("q")
    for place, entry in enumerate(parser.parse(block.lines)):
        traces.note(entry, place)
        columns.add(entry, asks(entry))
        encoded = _encode(entry)
        entries += encoded
        lengths.append(len(encoded))
    return ReadBlock(bytes(entries), lengths.tobytes(), columns.stretch(), traces, parser.rejections, parser.notes)
