"""What lines of the group coordinator in a broker's own log tell, by kind."""

from __future__ import annotations

from enum import StrEnum


class InfoEvent(StrEnum):
    """What a line tells. The value stands as ``event`` in the table coordinator_log."""

    #: A classic group's join phase began; `reason` is why.
    PREPARING_REBALANCE = "PREPARING_REBALANCE"
    #: The join phase ended with a new generation.
    STABILIZED = "STABILIZED"
    #: The leader's assignment arrived.
    ASSIGNMENT_RECEIVED = "ASSIGNMENT_RECEIVED"
    #: A classic group has no members any more.
    GROUP_EMPTY = "GROUP_EMPTY"
    #: A new member got an id and shall join again with it: it isn't a member yet.
    MEMBER_ID_GIVEN = "MEMBER_ID_GIVEN"
    MEMBER_JOINED = "MEMBER_JOINED"
    #: A static member came back under a new member id.
    STATIC_MEMBER_REPLACED = "STATIC_MEMBER_REPLACED"
    #: ... which caused no rebalance.
    STATIC_REJOIN_UNNOTICED = "STATIC_REJOIN_UNNOTICED"
    #: The instance id of a static member that joined.
    STATIC_MEMBER_NAMED = "STATIC_MEMBER_NAMED"
    MEMBER_LEFT = "MEMBER_LEFT"
    #: A static member of a consumer group left and may come back.
    MEMBER_LEFT_FOR_NOW = "MEMBER_LEFT_FOR_NOW"
    #: A member's session expired.
    SESSION_EXPIRED = "SESSION_EXPIRED"
    #: A member didn't give up its partitions within the rebalance timeout.
    REBALANCE_EXPIRED = "REBALANCE_EXPIRED"
    #: A classic member in a consumer group didn't join, or sync, in time.
    JOIN_EXPIRED = "JOIN_EXPIRED"
    SYNC_EXPIRED = "SYNC_EXPIRED"
    #: Who had got an id didn't join with it in time.
    PENDING_MEMBER_EXPIRED = "PENDING_MEMBER_EXPIRED"
    PENDING_MEMBER_LEFT = "PENDING_MEMBER_LEFT"
    #: Members that were still missing when the join phase ended by its timer.
    MEMBERS_NOT_REJOINED = "MEMBERS_NOT_REJOINED"
    LEADER_REPLACED = "LEADER_REPLACED"
    #: A second process with an instance id was refused, or fenced the first.
    INSTANCE_FENCED = "INSTANCE_FENCED"
    EPOCH_BUMPED = "EPOCH_BUMPED"
    TARGET_COMPUTED = "TARGET_COMPUTED"
    REGEX_RESOLVED = "REGEX_RESOLVED"
    ASSIGNMENT_CHANGED = "ASSIGNMENT_CHANGED"
    SUBSCRIPTION_CHANGED = "SUBSCRIPTION_CHANGED"
    UPGRADED = "UPGRADED"
    DOWNGRADED = "DOWNGRADED"
    CONVERSION_REFUSED = "CONVERSION_REFUSED"
    GROUP_LOADED = "GROUP_LOADED"
    #: A member of a group that was loaded; only the older coordinator names them.
    MEMBER_LOADED = "MEMBER_LOADED"
    GROUP_UNLOADED = "GROUP_UNLOADED"
    GROUP_DEAD = "GROUP_DEAD"
    GROUPS_DELETED = "GROUPS_DELETED"
    #: A partition of the offsets topic is loaded, or goes elsewhere.
    SHARD_LOADING = "SHARD_LOADING"
    SHARD_LOADED = "SHARD_LOADED"
    SHARD_UNLOADING = "SHARD_UNLOADING"
    #: A Streams group's topology was set, or found to lack topics.
    TOPOLOGY_SET = "TOPOLOGY_SET"
    #: Topics, or settings of a group's assignment, are others.
    METADATA_CHANGED = "METADATA_CHANGED"
    #: All members of a Streams group shall end.
    SHUTDOWN_REQUESTED = "SHUTDOWN_REQUESTED"
    #: What concerns no group's history: start and stop, expired offsets.
    HOUSEKEEPING = "HOUSEKEEPING"
