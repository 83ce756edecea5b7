"""The lines that Kafka's group coordinator writes at INFO and WARN, by shape, and what each tells.

Read from the log calls of 33 releases: the newer coordinator's (3.7 to 4.3, with its share and Streams groups, KIP-932
and KIP-1071) of GroupMetadataManager, GroupCoordinatorShard, ClassicGroup, StreamsGroup and CoordinatorRuntime, the
older one's (0.9 to 3.9) of GroupCoordinator.scala and GroupMetadataManager.scala. Where a wording differs, the releases
that have it stand beside it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from coordinator_udf.replay.inputs.info_log.events import InfoEvent


class Shape(NamedTuple):
    """One shape: what it tells, and the expression whose named groups are the columns of coordinator_log."""

    event: InfoEvent
    pattern: re.Pattern[str]


_E: Final = InfoEvent
#: The older coordinator names the partition of the offsets topic, and describes a member with all its fields.
_WHERE = r"(?: \((?!reason: )[^()]*\))?"
_MEMBER = r"(?:MemberMetadata\((?P<described>.*?)\)|(?P<member>.+?))"
_REASON = r"(?:; client reason: (?P<client_reason>.*?))?"
_GROUP = r"(?P<group>.+?)"
_STATE = r"in (?:state )?(?P<state>\w+)(?: state)?\."
_ID = r"\[GroupId[ =](?P<group>.+?)\] "
#: Lines of Streams groups (KIP-1071) name the member whose heartbeat it was.
_STREAMS = r"\[GroupId (?P<group>.+?)\]\[MemberId (?P<member>.+?)\] "
_MODERN_MEMBER = r"(?:Static [Mm]ember|Dynamic member|Member) (?P<member>.+?)(?: with instance id (?P<instance>.+?))?"

_TEXTS: Final[tuple[tuple[InfoEvent, str], ...]] = (
    (
        _E.PREPARING_REBALANCE,
        (
            rf"Preparing to (?:rebalance|restabilize) group {_GROUP}(?: in state (?P<state>\w+))? "
            rf"with old generation (?P<generation>-?\d+){_WHERE}(?: \(reason: (?P<reason>.*)\))?\.?"
        ),
    ),
    (
        _E.STABILIZED,
        rf"Stabilized group {_GROUP} generation (?P<generation>-?\d+){_WHERE}(?: with (?P<count>\d+) members)?\.?",
    ),
    (
        _E.ASSIGNMENT_RECEIVED,
        (
            rf"Assignment received from leader (?:(?P<member>.*?) )?for group {_GROUP} for generation "
            r"(?P<generation>-?\d+)(?:\. The group has (?P<count>\d+) members, (?P<static>\d+) of which are static)?\.?"
        ),
    ),
    (_E.GROUP_EMPTY, rf"Group {_GROUP} with generation (?P<generation>-?\d+) is now empty{_WHERE}\.?"),
    (
        _E.MEMBER_ID_GIVEN,
        (
            rf"Dynamic [Mm]ember with unknown member id joins group {_GROUP} {_STATE} "
            r"Created a new member id (?P<member>.+?) and request(?:ing)? the member to rejoin with this id\.?"
        ),
    ),
    (_E.MEMBER_JOINED, rf"Pending dynamic member with id (?P<member>.+?) joins group {_GROUP} {_STATE} Adding.*"),
    (
        _E.MEMBER_JOINED,
        (
            # To 2.8 also of static members, whose instance id is in the reason of the rebalance.
            r"(?:(?:Dynamic|Static) [Mm]ember with|Static member with groupInstanceId=(?P<instance>.+?) and) unknown "
            rf"member id joins group {_GROUP} {_STATE} Created a new member id (?P<member>.+?) (?:for this member )?"
            r"and add.*"
        ),
    ),
    (
        _E.STATIC_MEMBER_NAMED,
        rf"Adding new static member (?P<instance>.+?) to group {_GROUP} with member id (?P<member>.+?)\.?",
    ),
    (
        _E.STATIC_MEMBER_REPLACED,
        (
            r"Static member with groupInstanceId=(?P<instance>.+?) and unknown member id "
            rf"(?:joins|rejoins) group {_GROUP} {_STATE} "
            r"Replacing previously mapped member (?P<old_member>.+?) with this.*"
        ),
    ),
    (
        # 2.5 to 2.8
        _E.STATIC_MEMBER_REPLACED,
        (
            rf"Static member (?:Some\()?(?P<instance>.+?)\)? of group {_GROUP} with unknown member id rejoins, "
            r"assigning new member id (?P<member>.+?), while old member id (?P<old_member>.+?) will be removed\.?"
        ),
    ),
    (
        # 2.3 and 2.4 don't name the group.
        _E.STATIC_MEMBER_REPLACED,
        (
            r"Static member (?:Some\()?(?P<instance>.+?)\)? with unknown member id rejoins, assigning new member id "
            r"(?P<member>.+?), while old member (?P<old_member>.+?) will be removed\.?"
        ),
    ),
    (
        _E.STATIC_REJOIN_UNNOTICED,
        r"Static member (?:which )?joins during (?P<state>\w+) stage (?:and doesn't affect .*|will not trigger .*)",
    ),
    (
        _E.MEMBER_LEFT,
        (
            r"\[Group (?P<group>.+?)\] (?:Dynamic |Static )?[Mm]ember (?P<member>.+?)"
            r"(?: with instance id (?P<instance>.+?))? has left group through explicit `LeaveGroup`(?: request)?"
            rf"{_REASON}"
        ),
    ),
    (
        _E.MEMBER_LEFT,
        (
            rf"(?:Static |Dynamic )?[Mm]ember {_MEMBER} has left group {_GROUP} "
            rf"through explicit `LeaveGroup`(?: request)?{_REASON}"
        ),
    ),
    (
        _E.MEMBER_LEFT,
        (
            rf"Member\[group\.instance\.id (?P<instance>.*?), member\.id (?P<member>.*?)\] "
            rf"in group {_GROUP} has left, removing it from the group\.?"
        ),
    ),
    (_E.MEMBER_LEFT, rf"Member {_MEMBER} in group {_GROUP} has left, removing it from the group\.?"),
    (_E.PENDING_MEMBER_LEFT, r"\[Group (?P<group>.+?)\] Pending member (?P<member>\S+) has left.*"),
    (
        _E.PENDING_MEMBER_LEFT,
        rf"Pending member (?:with memberId=)?(?P<member>.+?) has left group {_GROUP} through.*",
    ),
    (_E.PENDING_MEMBER_LEFT, rf"Pending member (?P<member>.+?) is leaving group {_GROUP}\."),
    (_E.SESSION_EXPIRED, rf"Member {_MEMBER} in group {_GROUP} has failed, removing it from the group\.?"),
    (
        _E.PENDING_MEMBER_EXPIRED,
        rf"Pending member (?P<member>.+?) in group {_GROUP} has been removed after session timeout expiration\.?",
    ),
    (
        _E.MEMBERS_NOT_REJOINED,
        rf"Group {_GROUP} remove[d]? (?:dynamic )?members who haven't joined: (?P<members>.*)",
    ),
    (
        _E.LEADER_REPLACED,
        (
            r"Group leader \[member(?:Id|\.id): (?P<old_member>.+?), group(?:InstanceId|\.instance\.id): "
            r"(?P<instance>.+?)\] failed to join before (?:the )?rebalance timeout"
            r"(?:\. Member (?P<member>.+?) was elected as the new leader|,? and the group couldn't .*"
            r"|, while new leader .* was elected)\.?"
        ),
    ),
    (
        _E.INSTANCE_FENCED,
        (
            r"Request memberId=(?P<member>.+?) for static member with groupInstanceId=(?P<instance>.+?) is fenced by "
            r"(?:existing|current) memberId=(?P<old_member>.+?) during operation (?P<reason>\S+?)\.?"
        ),
    ),
    (
        _E.INSTANCE_FENCED,
        (
            rf"{_ID}{_MODERN_MEMBER} cannot join the group because the instance id is (?:is )?owned by member "
            r"(?P<old_member>\S+?)\.?"
        ),
    ),
    (_E.INSTANCE_FENCED, rf"{_ID}{_MODERN_MEMBER} is fenced by existing member (?P<old_member>\S+?)\.?"),
    (_E.MEMBER_JOINED, rf"{_STREAMS}Member joins the (?P<protocol>streams) group\.?"),
    (_E.MEMBER_LEFT, rf"{_STREAMS}Member \S+ left the (?P<protocol>streams) group\.?"),
    (
        _E.SESSION_EXPIRED,
        (
            rf"{_ID}(?P<protocol>Streams) member (?P<member>\S+) fenced from the group because "
            r"(?P<reason>the member session expired).*"
        ),
    ),
    (
        _E.EPOCH_BUMPED,
        (
            rf"{_STREAMS}Bumped (?P<protocol>streams) group epoch to (?P<generation>\d+) with metadata hash "
            r"(?P<metadata_hash>-?\d+)(?: and validated topic epoch -?\d+)?\.?"
        ),
    ),
    (
        _E.TOPOLOGY_SET,
        (
            rf"{_STREAMS}(?P<reason>Member initialized the topology .*|Member joined with stale topology .*"
            r"|Configuring the topology .*|Valid topic configuration found.*|Topic configuration failed .*)"
        ),
    ),
    # To 4.2 without the group.
    (_E.TOPOLOGY_SET, r"(?P<reason>Valid topic configuration found.*|Topic configuration failed for topology .*)"),
    (
        _E.METADATA_CHANGED,
        rf"{_STREAMS}(?P<reason>Computed new metadata hash: .*|Assignment configurations changed to .*)",
    ),
    (_E.METADATA_CHANGED, rf"{_ID}(?P<reason>Computed new metadata hash: .*)"),
    (_E.SUBSCRIPTION_CHANGED, rf"{_STREAMS}Member updated its member meta?data to (?P<reason>.*)"),
    (_E.ASSIGNMENT_CHANGED, rf"{_STREAMS}Member's new assignment state: (?P<reason>.*)"),
    (_E.SHUTDOWN_REQUESTED, rf"{_STREAMS}Shutdown requested for the streams application\.?"),
    (_E.MEMBER_JOINED, rf"{_ID}Member (?P<member>\S+) joins the (?P<protocol>share) group using the share protocol\.?"),
    (_E.MEMBER_LEFT, rf"{_ID}Member (?P<member>\S+) left the (?P<protocol>share) group\.?"),
    (
        _E.EPOCH_BUMPED,
        rf"{_ID}Bumped group epoch to (?P<generation>\d+)(?: with metadata hash (?P<metadata_hash>-?\d+))?\.?",
    ),
    (
        _E.TARGET_COMPUTED,
        (
            rf"{_ID}Computed a new target assignment for epoch (?P<generation>\d+) with '(?P<assignor>.*?)' "
            r"assignor(?: in (?P<duration>\d+)ms|:).*"
        ),
    ),
    (
        _E.MEMBER_ID_GIVEN,
        (
            rf"{_ID}Dynamic member with unknown member id joins the consumer group\. "
            r"Created a new member id (?P<member>\S+) and requesting.*"
        ),
    ),
    (
        _E.STATIC_MEMBER_REPLACED,
        (
            rf"{_ID}Static member with instance id (?P<instance>.+?) re-joins the consumer group using the "
            r"(?P<protocol>\w+) protocol\. Created a new member (?P<member>.+?) to replace the existing member "
            r"(?P<old_member>.+?)\.?"
        ),
    ),
    (
        # 3.8
        _E.STATIC_MEMBER_REPLACED,
        (
            rf"{_ID}Static member with unknown member id and instance id (?P<instance>.+?) re-joins the "
            r"(?P<protocol>consumer) group\. Created a new member (?P<member>.+?) to replace the existing member "
            r"(?P<old_member>.+?)\.?"
        ),
    ),
    (_E.MEMBER_JOINED, rf"{_ID}{_MODERN_MEMBER} joins the consumer group using the (?P<protocol>\w+) protocol\.?"),
    # 3.7 and 3.8
    (_E.MEMBER_JOINED, rf"{_ID}{_MODERN_MEMBER} (?:re-)?joins the (?P<protocol>consumer) group\.?"),
    (_E.MEMBER_LEFT_FOR_NOW, rf"{_ID}{_MODERN_MEMBER} temporarily left the (?P<protocol>consumer) group\.?"),
    (_E.MEMBER_LEFT, rf"{_ID}{_MODERN_MEMBER} left the (?P<protocol>consumer) group\.?"),
    (
        _E.MEMBER_LEFT,
        rf"{_ID}{_MODERN_MEMBER} has left group through explicit `LeaveGroup` request{_REASON}",
    ),
    (
        _E.REBALANCE_EXPIRED,
        rf"{_ID}Member (?P<member>\S+) fenced from the group because (?P<reason>it failed to .*)",
    ),
    (
        _E.JOIN_EXPIRED,
        rf"{_ID}Member (?P<member>\S+) fenced from the group because (?P<reason>the classic member failed to join .*)",
    ),
    (
        _E.SYNC_EXPIRED,
        rf"{_ID}Member (?P<member>\S+) fenced from the group because (?P<reason>the member failed to sync .*)",
    ),
    (
        _E.SESSION_EXPIRED,
        rf"{_ID}Member (?P<member>\S+) fenced from the group because (?P<reason>(?:the member|its) session expired.*)",
    ),
    (
        _E.REGEX_RESOLVED,
        rf"{_ID}Scanned (?P<count>\d+) topics to refresh regular expressions (?P<reason>.*) in (?P<duration>\d+)ms\.?",
    ),
    (
        _E.SUBSCRIPTION_CHANGED,
        rf"{_ID}Member (?P<member>\S+) updated its subscribed (?:topics|regex) to:? (?P<reason>.*)",
    ),
    (_E.ASSIGNMENT_CHANGED, rf"{_ID}Member (?P<member>\S+) new assignment state: (?P<reason>.*)"),
    (_E.UPGRADED, rf"{_ID}Converted the (?:empty )?classic group to a (?P<protocol>consumer|streams) group\.?"),
    (_E.DOWNGRADED, rf"{_ID}Converted the (?:empty )?(?:consumer|streams) group to a (?P<protocol>classic) group\.?"),
    (
        _E.CONVERSION_REFUSED,
        (
            rf"Cannot (?:upgrade|downgrade) (?:the )?(?:classic |consumer )group {_GROUP}(?::| to | because )"
            r"(?P<reason>.*)"
        ),
    ),
    (_E.CONVERSION_REFUSED, rf"Cannot join the consumer group {_GROUP} with the classic protocol(?P<reason>.*)"),
    (_E.GROUP_LOADED, rf"Loaded (?P<protocol>\w+) group {_GROUP} with (?P<count>\d+) members\.?"),
    (_E.GROUP_LOADED, rf"Loading group metadata for {_GROUP} with generation (?P<generation>-?\d+)\.?"),
    (
        _E.GROUP_UNLOADED,
        (
            rf"(?:{_ID})(?:Unloading group metadata for generation|Unloaded group metadata for group epoch) "
            r"(?P<generation>-?\d+)\.?"
        ),
    ),
    (_E.GROUP_UNLOADED, rf"Unloading group metadata for {_GROUP} with generation (?P<generation>-?\d+)\.?"),
    (_E.GROUP_DEAD, rf"Group {_GROUP} transitioned to Dead in generation (?P<generation>-?\d+)\.?"),
    # 0.9
    (_E.GROUP_DEAD, rf"Group {_GROUP} generation (?P<generation>-?\d+) is dead and removed\.?"),
    (_E.GROUPS_DELETED, r"The following groups were deleted: (?P<members>.*?)(?:\. A total of .*)?"),
    (_E.MEMBER_LOADED, rf"Loaded member {_MEMBER} in group {_GROUP} with generation (?P<generation>-?\d+)\.?"),
    (
        # 2.5 to 2.7
        _E.MEMBER_LOADED,
        (
            rf"Static member (?P<instance>.+?) of group {_GROUP} loaded with member id (?P<member>.+?) at generation "
            r"(?P<generation>-?\d+)\.?"
        ),
    ),
    (
        _E.SHARD_LOADING,
        (
            r"(?:Scheduling loading of (?:metadata|offsets and group metadata) from|Loading offsets and group metadata "
            r"from|Elected as the group coordinator for partition) .*"
        ),
    ),
    (
        _E.SHARD_LOADED,
        r"Finished loading (?:of metadata|offsets and group metadata|offsets) from .* in (?P<duration>\d+) ?m.*",
    ),
    (
        _E.SHARD_UNLOADING,
        r"(?:Scheduling unloading of|Started unloading|Finished unloading|Resigned as the group coordinator for) .*",
    ),
    (
        _E.HOUSEKEEPING,
        (
            r"(?:Starting|Startup complete|Shutting down|Shutdown complete|Closing coordinator runtime|"
            r"Coordinator runtime (?:closed|is already)|Ignor(?:ed|ing) (?:(?:un)?loading|load completion) |"
            r"Event processor closed|Generated \d+ |Removed \d+ (?:expired|offsets|cached) |Already (?:un)?loading |"
            r"The coordinator .* is already |Group coordinator is already |Not (?:loading|removing) offsets |"
            r"Offset load from .* already in progress|BrokerId -?\d+ is no longer a coordinator |"
            r"Initializing topic .* for share group |Existing deleting entries found in share group |"
            r"Some topics for share group id |\[GroupId .*\] (?:Skipping|Cannot compute) delayed target assignment|"
            r"\[GroupId .*\] Clearing shutdown requested |\[GroupId .*\] Group not found during initial rebalance|"
            r"The following offsets of the group .* were deleted|Received notification of heartbeat expiration for "
            r"|Member id .* was not found in .* during heartbeat |Group .* is dead, skipping rebalance stage|"
            r"Group .* has moved away from ).*"
        ),
    ),
)

SHAPES: Final = tuple(Shape(event, re.compile(text, re.DOTALL)) for event, text in _TEXTS)


def match(message: str) -> tuple[InfoEvent, dict[str, str | None]] | None:
    """Returns what a line's message tells, with its named fields; None where no shape is known for it."""
    for event, pattern in SHAPES:
        found = pattern.fullmatch(message)
        if found is not None:
            return event, found.groupdict()
    return None
