"""A row of the request log as the shard sees it."""

from __future__ import annotations

from schemas.request_row import Request

__all__ = ["Request"]
