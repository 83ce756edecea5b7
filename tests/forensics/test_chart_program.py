"""The program of a page's charts is bundled once for an installation."""

from __future__ import annotations

from pathlib import Path

import pytest
import vl_convert

from coordinator_udf.forensics import chart_program as room


def test_what_is_kept_is_what_would_be_bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "KEPT", tmp_path / room.KEPT.name)
    (tmp_path / "vega-embed-0.js").write_text("an older one")
    bundled = room.chart_program.__wrapped__()
    assert "window.vegaEmbed" in bundled
    room.keep_chart_program()
    assert [path.name for path in tmp_path.iterdir()] == [room.KEPT.name]
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda _: "bundled again")
    assert room.chart_program.__wrapped__() == bundled
