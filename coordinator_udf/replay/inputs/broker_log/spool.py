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

from coordinator_udf.replay.inputs.broker_log.columns import ColumnBuilder, Columns, joined
from coordinator_udf.replay.inputs.broker_log.line import MARK, Entry
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
    columns: Columns
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
        self._index: NDArray[np.void] = np.load(directory / "index.npy", mmap_mode="r")

    def __len__(self) -> int:
        return len(self._index)

    def all(self) -> Iterator[Entry]:
        """Returns all entries in order."""
        return self._read(np.arange(len(self._index)))

    def that_ask_several(self) -> Iterator[Entry]:
        """Returns the entries that may ask several shards, in order."""
        return self._read(np.flatnonzero(self._index["asks"] == SEVERAL))

    def lines_of_shards(self, partitions: int) -> NDArray[np.int64]:
        """Returns how many lines ask each shard."""
        hashes = self._index["asks"]
        return np.bincount(hashes[hashes >= 0] % partitions, minlength=partitions)

    def of_shards(
        self, partitions: int, mine: Collection[int], touched: Mapping[int, Sequence[Sequence[int]]]
    ) -> Iterator[Entry]:
        """Returns the entries that ask some shards, or several, or end a transaction in one of them; in order.

        Args:
            touched: by the numbers of lines that end transactions, the shards that are told so.
        """
        hashes = np.array(self._index["asks"])
        wanted = (hashes >= 0) & np.isin(hashes % partitions, list(mine))
        wanted |= hashes == SEVERAL
        own = set(mine)
        ends = [number for number, shards in touched.items() if any(not own.isdisjoint(each) for each in shards)]
        if ends:
            wanted |= (hashes == NONE) & np.isin(self._index["number"], ends)
        return self._read(np.flatnonzero(wanted))

    def _read(self, places: NDArray[np.int64]) -> Iterator[Entry]:
        with self._entries.open("rb") as file:
            for rank in places.tolist():
                start, length, _, written_us, log_ts, _ = self._index[rank].item()
                file.seek(start)
                entry = _decode(file.read(length))
                entry.written_us, entry.log_ts, entry.rank = written_us, log_ts, rank
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
    columns: list[Columns] = []
    lengths = array("q")
    with (directory / "entries").open("wb") as out:
        for block in mapped(read_block, _blocks(paths, options)):
            out.write(block.entries)
            traces.join(block.traces, len(lengths))
            lengths.frombytes(block.lengths)
            columns.append(block.columns)
            rejections += block.rejections
            notes += block.notes
            say_read(len(block.columns.number) + len(block.rejections))
    if not lengths:
        return None
    order = in_order(joined(columns))
    _write_index(directory, order, np.array(lengths, dtype=np.int64))
    return Spooled(Spool(directory), order, traces, rejections, notes)


def _write_index(directory: Path, order: Order, lengths: NDArray[np.int64]) -> None:
    # On the disk from the beginning: it is as large as all that is kept of the lines.
    index = np.lib.format.open_memmap(directory / "index.npy", "w+", _INDEX, (len(lengths),))
    places = order.places
    index["start"] = (np.cumsum(lengths) - lengths)[places]
    index["length"] = lengths[places]
    index["log_ts"] = order.log_ts[places]
    for name in ("number", "written_us", "asks"):
        index[name] = getattr(order.columns, name)[places]
    index.flush()


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
    return ReadBlock(bytes(entries), lengths.tobytes(), columns.columns(), traces, parser.rejections, parser.notes)
