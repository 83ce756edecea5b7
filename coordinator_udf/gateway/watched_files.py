"""The files of topics, users and ACLs, which are read again when they are written to."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from coordinator_udf.background import Watch
from coordinator_udf.gateway.gateway import Gateway
from coordinator_udf.gateway.options import GatewayOptions
from coordinator_udf.settings.coordinator import SettingsError
from coordinator_udf.settings.file import load_settings

_log = logging.getLogger(__name__)

#: How often the files are looked at, in seconds: as late as that a change is seen.
_WATCH_S: Final = 2.0


def watch_files(gateway: Gateway, options: GatewayOptions) -> Watch:
    """Takes over topics that clients of other gateways change, and what is written to files of topics, users and ACLs.

    A file that can't be read is logged, and all stays as it was. With a cluster the topics are its.
    """
    seen = _stamp(options.config)

    def look() -> None:
        nonlocal seen
        gateway.look_at_users()
        if options.upstream is not None:
            return
        stamp = _stamp(options.config)
        if stamp != seen:
            seen = stamp
            gateway.set_topics(load_settings(options.config).topics)
        gateway.look_at_topics()

    failed = f"the topics could not be put on the log; write {options.config} again to have it tried"
    expected = (SettingsError, ValueError)
    return Watch(look, _WATCH_S, expected, "topics, users and ACLs stay as they were", failed, _log)


def _stamp(config: Path | None) -> int | None:
    try:
        return None if config is None else config.stat().st_mtime_ns
    except OSError:
        return None
