"""What clients ask of settings: those of topics, brokers and groups, or of groups alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from coordinator_udf.gateway.apis.alter_configs import ALTERATIONS, alter_configs
from coordinator_udf.gateway.apis.cluster import Node
from coordinator_udf.gateway.apis.configs import Configurable, describe_configs, list_config_resources
from coordinator_udf.gateway.apis.refused_changes import refuse_change
from coordinator_udf.gateway.group_configs import GroupConfigStore
from coordinator_udf.gateway.server.interfaces import MakeBody
from coordinator_udf.gateway.settings import GroupSetting
from coordinator_udf.gateway.topics import TopicCatalog

_NO_NODE: Final = Node(-1, "", -1, "")
_NO_TOPICS: Final = TopicCatalog(())


class ConfigRequests:
    """Answers DescribeConfigs, ListConfigResources, AlterConfigs and IncrementalAlterConfigs.

    Args:
        store: where groups' own settings are kept; None where the log keeps none.
        of_groups: what groups have from the coordinator.
        node: this gateway; by default only groups have settings here.
        catalog: returns the topics of now; by default there are none.
    """

    def __init__(
        self,
        store: GroupConfigStore | None,
        of_groups: Sequence[GroupSetting],
        node: Node = _NO_NODE,
        catalog: Callable[[], TopicCatalog] = lambda: _NO_TOPICS,
    ) -> None:
        self._store = store
        self._of_groups = of_groups
        self._node = node
        self._catalog = catalog

    def start(self, api: str, version: int, body: Mapping[str, Any]) -> asyncio.Future[MakeBody]:
        """Starts a request in a thread that may wait for the log."""
        return asyncio.get_running_loop().run_in_executor(None, partial(self._answered, api, version, body))

    def answer(self, api: str, version: int, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answers a request; a change of settings waits for the log."""
        store, there = self._store, Configurable(self._node, self._catalog(), self._of_groups)
        if api in ALTERATIONS:
            if store is None:
                return refuse_change(api, version, body)
            return store.change(partial(alter_configs, api, version, body, there))
        known = there if store is None else replace(there, own=store.read())
        read = describe_configs if api == "DescribeConfigs" else list_config_resources
        return read(version, body, known)

    def _answered(self, api: str, version: int, body: Mapping[str, Any]) -> MakeBody:
        answer = self.answer(api, version, body)
        return lambda: answer
