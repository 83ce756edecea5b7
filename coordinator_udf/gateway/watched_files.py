"""The files of topics, users and ACLs, which are read again when they are written to or replaced."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from coordinator_udf.background import BackgroundThread, Watch
from coordinator_udf.gateway.file_stamps import file_stamp
from coordinator_udf.gateway.gateway import Gateway
from coordinator_udf.gateway.options import GatewayOptions
from coordinator_udf.settings.coordinator import SettingsError
from coordinator_udf.settings.file import load_settings

_log = logging.getLogger(__name__)

#: How often the files are looked at, in seconds: as late as that a change is seen, a right that was taken away among
#: them. A look is a stat of each file.
_WATCH_S: Final = 2.0
_EXPECTED: Final = (SettingsError, ValueError)


@contextmanager
def files_watched(gateway: Gateway, options: GatewayOptions) -> Iterator[None]:
    """Takes over what is written to the files for as long as the context lasts.

    A file that can't be read is logged, and what it says stays as it was; the others are taken over nonetheless.
    """
    # An identity provider that takes its time keeps no topic waiting.
    with BackgroundThread(_watch_topics(gateway, options), "topics"), BackgroundThread(_watch_users(gateway), "users"):
        yield


def _watch_topics(gateway: Gateway, options: GatewayOptions) -> Watch:
    """Takes over topics of the settings file, and those that clients of other gateways change.

    With a cluster the topics are its.
    """
    seen = file_stamp(options.config)

    def look() -> None:
        nonlocal seen
        if options.upstream is not None:
            return
        stamp = file_stamp(options.config)
        if stamp != seen:
            seen = stamp
            gateway.set_topics(load_settings(options.config).topics)
        gateway.look_at_topics()

    failed = f"the topics could not be put on the log; write {options.config} again to have it tried"
    return Watch(look, _WATCH_S, _EXPECTED, "topics stay as they were", failed, _log)


def _watch_users(gateway: Gateway) -> Watch:
    """Takes over users, ACLs and the keys of tokens."""
    failed = "users, ACLs and keys of tokens could not be looked at"
    return Watch(gateway.look_at_users, _WATCH_S, _EXPECTED, "of users, ACLs and keys of tokens", failed, _log)
