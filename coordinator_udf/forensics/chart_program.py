"""The program that draws a page's charts (Vega-Embed with all that it needs), kept as one text."""

from __future__ import annotations

import os
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Final

import vl_convert

_SNIPPET: Final = "window.vegaEmbed = vegaEmbed;"
_VERSION: Final = f"{vl_convert.__version__}-{zlib.crc32(_SNIPPET.encode()):08x}"  # type: ignore[attr-defined]

#: Where scripts/setup keeps it: to bundle it anew takes more than a second, as much as the rest of a small page.
KEPT: Final = Path(sys.prefix) / f"vega-embed-{_VERSION}.js"


@cache
def chart_program() -> str:
    """Returns the program, a script that sets ``window.vegaEmbed``."""
    return KEPT.read_text(encoding="utf-8") if KEPT.is_file() else vl_convert.javascript_bundle(_SNIPPET)


def keep_chart_program() -> None:
    """Keeps the program for later pages of this installation, in place of older ones."""
    for older in KEPT.parent.glob("vega-embed-*"):
        older.unlink(missing_ok=True)
    draft = KEPT.with_suffix(f".{os.getpid()}")
    draft.write_text(vl_convert.javascript_bundle(_SNIPPET), encoding="utf-8")
    draft.rename(KEPT)
