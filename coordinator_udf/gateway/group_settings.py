"""What clients ask of the settings of groups, where all else that has settings is another's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from coordinator_udf.gateway.apis.alter_configs import alter_configs
from coordinator_udf.gateway.apis.cluster import Node
from coordinator_udf.gateway.apis.configs import Configurable, describe_configs, list_config_resources
from coordinator_udf.gateway.apis.unkept import refuse_change
from coordinator_udf.gateway.group_configs import GroupConfigStore
from coordinator_udf.gateway.server.interfaces import MakeBody
from coordinator_udf.gateway.settings import GroupConfig
from coordinator_udf.gateway.topics import TopicCatalog

_NO_NODE: Final = Node(-1, "", -1, "")
_NO_TOPICS: Final = TopicCatalog(())


class GroupSettings:
    """Answers requests about settings that ask of groups alone.

    Args:
        store: where groups' own settings are kept; None where the log keeps none.
        of_groups: what groups have from the coordinator.
    """

    def __init__(self, store: GroupConfigStore | None, of_groups: Sequence[GroupConfig]) -> None:
        self._store = store
        self._there = Configurable(_NO_NODE, _NO_TOPICS, of_groups)

    def start(self, api: str, version: int, body: Mapping[str, Any]) -> asyncio.Future[MakeBody]:
        """Starts a request in a thread that may wait for the log.

        Args:
            api: DescribeConfigs, IncrementalAlterConfigs or ListConfigResources.
        """
        return asyncio.get_running_loop().run_in_executor(None, partial(self._answered, api, version, body))

    def _answered(self, api: str, version: int, body: Mapping[str, Any]) -> MakeBody:
        store, there = self._store, self._there
        own = {} if store is None else store.read()
        known = Configurable(there.node, there.catalog, there.of_groups, own)
        match api:
            case "DescribeConfigs":
                answer = describe_configs(version, body, known)
            case "ListConfigResources":
                answer = list_config_resources(version, body, known)
            case _ if store is None:
                answer = refuse_change(api, version, body)
            case _:
                answer = store.change(partial(alter_configs, version, body, there))
        return lambda: answer
