"""What Kafka's client throws: an exception's class by the error code of an answer, and which may be tried again.

The classes are known by their simple names in Java, as an application would see them (org.apache.kafka.common.errors).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Retry(Enum):
    """Whether what failed may be tried again."""

    NO = "an error that another attempt meets again"
    YES = "RetriableException"
    WITH_METADATA = "InvalidMetadataException: retriable, and the metadata is out of date"


class ErrorClass(NamedTuple):
    """An error code's name (Errors) and the exception that stands for it."""

    name: str
    exception: str
    retry: Retry = Retry.NO


_RETRIABLE = Retry.YES
_METADATA = Retry.WITH_METADATA

#: Every error code but 0. Source: Errors, and the classes above each exception.
ERROR_CLASSES: dict[int, ErrorClass] = {
    -1: ErrorClass("UNKNOWN_SERVER_ERROR", "UnknownServerException"),
    1: ErrorClass("OFFSET_OUT_OF_RANGE", "OffsetOutOfRangeException"),
    2: ErrorClass("CORRUPT_MESSAGE", "CorruptRecordException", _RETRIABLE),
    3: ErrorClass("UNKNOWN_TOPIC_OR_PARTITION", "UnknownTopicOrPartitionException", _METADATA),
    4: ErrorClass("INVALID_FETCH_SIZE", "InvalidFetchSizeException"),
    5: ErrorClass("LEADER_NOT_AVAILABLE", "LeaderNotAvailableException", _METADATA),
    6: ErrorClass("NOT_LEADER_OR_FOLLOWER", "NotLeaderOrFollowerException", _METADATA),
    7: ErrorClass("REQUEST_TIMED_OUT", "TimeoutException", _RETRIABLE),
    8: ErrorClass("BROKER_NOT_AVAILABLE", "BrokerNotAvailableException"),
    9: ErrorClass("REPLICA_NOT_AVAILABLE", "ReplicaNotAvailableException", _METADATA),
    10: ErrorClass("MESSAGE_TOO_LARGE", "RecordTooLargeException"),
    11: ErrorClass("STALE_CONTROLLER_EPOCH", "ControllerMovedException"),
    12: ErrorClass("OFFSET_METADATA_TOO_LARGE", "OffsetMetadataTooLarge"),
    13: ErrorClass("NETWORK_EXCEPTION", "NetworkException", _METADATA),
    14: ErrorClass("COORDINATOR_LOAD_IN_PROGRESS", "CoordinatorLoadInProgressException", _RETRIABLE),
    15: ErrorClass("COORDINATOR_NOT_AVAILABLE", "CoordinatorNotAvailableException", _RETRIABLE),
    16: ErrorClass("NOT_COORDINATOR", "NotCoordinatorException", _RETRIABLE),
    17: ErrorClass("INVALID_TOPIC_EXCEPTION", "InvalidTopicException"),
    18: ErrorClass("RECORD_LIST_TOO_LARGE", "RecordBatchTooLargeException"),
    19: ErrorClass("NOT_ENOUGH_REPLICAS", "NotEnoughReplicasException", _RETRIABLE),
    20: ErrorClass("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NotEnoughReplicasAfterAppendException", _RETRIABLE),
    21: ErrorClass("INVALID_REQUIRED_ACKS", "InvalidRequiredAcksException"),
    22: ErrorClass("ILLEGAL_GENERATION", "IllegalGenerationException"),
    23: ErrorClass("INCONSISTENT_GROUP_PROTOCOL", "InconsistentGroupProtocolException"),
    24: ErrorClass("INVALID_GROUP_ID", "InvalidGroupIdException"),
    25: ErrorClass("UNKNOWN_MEMBER_ID", "UnknownMemberIdException"),
    26: ErrorClass("INVALID_SESSION_TIMEOUT", "InvalidSessionTimeoutException"),
    27: ErrorClass("REBALANCE_IN_PROGRESS", "RebalanceInProgressException"),
    28: ErrorClass("INVALID_COMMIT_OFFSET_SIZE", "InvalidCommitOffsetSizeException"),
    29: ErrorClass("TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationException"),
    30: ErrorClass("GROUP_AUTHORIZATION_FAILED", "GroupAuthorizationException"),
    31: ErrorClass("CLUSTER_AUTHORIZATION_FAILED", "ClusterAuthorizationException"),
    32: ErrorClass("INVALID_TIMESTAMP", "InvalidTimestampException"),
    33: ErrorClass("UNSUPPORTED_SASL_MECHANISM", "UnsupportedSaslMechanismException"),
    34: ErrorClass("ILLEGAL_SASL_STATE", "IllegalSaslStateException"),
    35: ErrorClass("UNSUPPORTED_VERSION", "UnsupportedVersionException"),
    36: ErrorClass("TOPIC_ALREADY_EXISTS", "TopicExistsException"),
    37: ErrorClass("INVALID_PARTITIONS", "InvalidPartitionsException"),
    38: ErrorClass("INVALID_REPLICATION_FACTOR", "InvalidReplicationFactorException"),
    39: ErrorClass("INVALID_REPLICA_ASSIGNMENT", "InvalidReplicaAssignmentException"),
    40: ErrorClass("INVALID_CONFIG", "InvalidConfigurationException"),
    41: ErrorClass("NOT_CONTROLLER", "NotControllerException", _RETRIABLE),
    42: ErrorClass("INVALID_REQUEST", "InvalidRequestException"),
    43: ErrorClass("UNSUPPORTED_FOR_MESSAGE_FORMAT", "UnsupportedForMessageFormatException"),
    44: ErrorClass("POLICY_VIOLATION", "PolicyViolationException"),
    45: ErrorClass("OUT_OF_ORDER_SEQUENCE_NUMBER", "OutOfOrderSequenceException"),
    46: ErrorClass("DUPLICATE_SEQUENCE_NUMBER", "DuplicateSequenceException"),
    47: ErrorClass("INVALID_PRODUCER_EPOCH", "InvalidProducerEpochException"),
    48: ErrorClass("INVALID_TXN_STATE", "InvalidTxnStateException"),
    49: ErrorClass("INVALID_PRODUCER_ID_MAPPING", "InvalidPidMappingException"),
    50: ErrorClass("INVALID_TRANSACTION_TIMEOUT", "InvalidTxnTimeoutException"),
    51: ErrorClass("CONCURRENT_TRANSACTIONS", "ConcurrentTransactionsException", _RETRIABLE),
    52: ErrorClass("TRANSACTION_COORDINATOR_FENCED", "TransactionCoordinatorFencedException"),
    53: ErrorClass("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "TransactionalIdAuthorizationException"),
    54: ErrorClass("SECURITY_DISABLED", "SecurityDisabledException"),
    55: ErrorClass("OPERATION_NOT_ATTEMPTED", "OperationNotAttemptedException"),
    56: ErrorClass("KAFKA_STORAGE_ERROR", "KafkaStorageException", _METADATA),
    57: ErrorClass("LOG_DIR_NOT_FOUND", "LogDirNotFoundException"),
    58: ErrorClass("SASL_AUTHENTICATION_FAILED", "SaslAuthenticationException"),
    59: ErrorClass("UNKNOWN_PRODUCER_ID", "UnknownProducerIdException"),
    60: ErrorClass("REASSIGNMENT_IN_PROGRESS", "ReassignmentInProgressException"),
    61: ErrorClass("DELEGATION_TOKEN_AUTH_DISABLED", "DelegationTokenDisabledException"),
    62: ErrorClass("DELEGATION_TOKEN_NOT_FOUND", "DelegationTokenNotFoundException"),
    63: ErrorClass("DELEGATION_TOKEN_OWNER_MISMATCH", "DelegationTokenOwnerMismatchException"),
    64: ErrorClass("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", "UnsupportedByAuthenticationException"),
    65: ErrorClass("DELEGATION_TOKEN_AUTHORIZATION_FAILED", "DelegationTokenAuthorizationException"),
    66: ErrorClass("DELEGATION_TOKEN_EXPIRED", "DelegationTokenExpiredException"),
    67: ErrorClass("INVALID_PRINCIPAL_TYPE", "InvalidPrincipalTypeException"),
    68: ErrorClass("NON_EMPTY_GROUP", "GroupNotEmptyException"),
    69: ErrorClass("GROUP_ID_NOT_FOUND", "GroupIdNotFoundException"),
    70: ErrorClass("FETCH_SESSION_ID_NOT_FOUND", "FetchSessionIdNotFoundException", _RETRIABLE),
    71: ErrorClass("INVALID_FETCH_SESSION_EPOCH", "InvalidFetchSessionEpochException", _RETRIABLE),
    72: ErrorClass("LISTENER_NOT_FOUND", "ListenerNotFoundException", _METADATA),
    73: ErrorClass("TOPIC_DELETION_DISABLED", "TopicDeletionDisabledException"),
    74: ErrorClass("FENCED_LEADER_EPOCH", "FencedLeaderEpochException", _METADATA),
    75: ErrorClass("UNKNOWN_LEADER_EPOCH", "UnknownLeaderEpochException", _RETRIABLE),
    76: ErrorClass("UNSUPPORTED_COMPRESSION_TYPE", "UnsupportedCompressionTypeException"),
    77: ErrorClass("STALE_BROKER_EPOCH", "StaleBrokerEpochException"),
    78: ErrorClass("OFFSET_NOT_AVAILABLE", "OffsetNotAvailableException", _RETRIABLE),
    79: ErrorClass("MEMBER_ID_REQUIRED", "MemberIdRequiredException"),
    80: ErrorClass("PREFERRED_LEADER_NOT_AVAILABLE", "PreferredLeaderNotAvailableException", _METADATA),
    81: ErrorClass("GROUP_MAX_SIZE_REACHED", "GroupMaxSizeReachedException"),
    82: ErrorClass("FENCED_INSTANCE_ID", "FencedInstanceIdException"),
    83: ErrorClass("ELIGIBLE_LEADERS_NOT_AVAILABLE", "EligibleLeadersNotAvailableException", _METADATA),
    84: ErrorClass("ELECTION_NOT_NEEDED", "ElectionNotNeededException", _METADATA),
    85: ErrorClass("NO_REASSIGNMENT_IN_PROGRESS", "NoReassignmentInProgressException"),
    86: ErrorClass("GROUP_SUBSCRIBED_TO_TOPIC", "GroupSubscribedToTopicException"),
    87: ErrorClass("INVALID_RECORD", "InvalidRecordException"),
    88: ErrorClass("UNSTABLE_OFFSET_COMMIT", "UnstableOffsetCommitException", _RETRIABLE),
    89: ErrorClass("THROTTLING_QUOTA_EXCEEDED", "ThrottlingQuotaExceededException", _RETRIABLE),
    90: ErrorClass("PRODUCER_FENCED", "ProducerFencedException"),
    91: ErrorClass("RESOURCE_NOT_FOUND", "ResourceNotFoundException"),
    92: ErrorClass("DUPLICATE_RESOURCE", "DuplicateResourceException"),
    93: ErrorClass("UNACCEPTABLE_CREDENTIAL", "UnacceptableCredentialException"),
    94: ErrorClass("INCONSISTENT_VOTER_SET", "InconsistentVoterSetException"),
    95: ErrorClass("INVALID_UPDATE_VERSION", "InvalidUpdateVersionException"),
    96: ErrorClass("FEATURE_UPDATE_FAILED", "FeatureUpdateFailedException"),
    97: ErrorClass("PRINCIPAL_DESERIALIZATION_FAILURE", "PrincipalDeserializationException"),
    98: ErrorClass("SNAPSHOT_NOT_FOUND", "SnapshotNotFoundException"),
    99: ErrorClass("POSITION_OUT_OF_RANGE", "PositionOutOfRangeException"),
    100: ErrorClass("UNKNOWN_TOPIC_ID", "UnknownTopicIdException", _METADATA),
    101: ErrorClass("DUPLICATE_BROKER_REGISTRATION", "DuplicateBrokerRegistrationException"),
    102: ErrorClass("BROKER_ID_NOT_REGISTERED", "BrokerIdNotRegisteredException"),
    103: ErrorClass("INCONSISTENT_TOPIC_ID", "InconsistentTopicIdException", _METADATA),
    104: ErrorClass("INCONSISTENT_CLUSTER_ID", "InconsistentClusterIdException"),
    105: ErrorClass("TRANSACTIONAL_ID_NOT_FOUND", "TransactionalIdNotFoundException"),
    106: ErrorClass("FETCH_SESSION_TOPIC_ID_ERROR", "FetchSessionTopicIdException", _RETRIABLE),
    107: ErrorClass("INELIGIBLE_REPLICA", "IneligibleReplicaException"),
    108: ErrorClass("NEW_LEADER_ELECTED", "NewLeaderElectedException"),
    109: ErrorClass("OFFSET_MOVED_TO_TIERED_STORAGE", "OffsetMovedToTieredStorageException"),
    110: ErrorClass("FENCED_MEMBER_EPOCH", "FencedMemberEpochException"),
    111: ErrorClass("UNRELEASED_INSTANCE_ID", "UnreleasedInstanceIdException"),
    112: ErrorClass("UNSUPPORTED_ASSIGNOR", "UnsupportedAssignorException"),
    113: ErrorClass("STALE_MEMBER_EPOCH", "StaleMemberEpochException"),
    114: ErrorClass("MISMATCHED_ENDPOINT_TYPE", "MismatchedEndpointTypeException"),
    115: ErrorClass("UNSUPPORTED_ENDPOINT_TYPE", "UnsupportedEndpointTypeException"),
    116: ErrorClass("UNKNOWN_CONTROLLER_ID", "UnknownControllerIdException"),
    117: ErrorClass("UNKNOWN_SUBSCRIPTION_ID", "UnknownSubscriptionIdException"),
    118: ErrorClass("TELEMETRY_TOO_LARGE", "TelemetryTooLargeException"),
    119: ErrorClass("INVALID_REGISTRATION", "InvalidRegistrationException"),
    120: ErrorClass("TRANSACTION_ABORTABLE", "TransactionAbortableException"),
    121: ErrorClass("INVALID_RECORD_STATE", "InvalidRecordStateException"),
    122: ErrorClass("SHARE_SESSION_NOT_FOUND", "ShareSessionNotFoundException", _RETRIABLE),
    123: ErrorClass("INVALID_SHARE_SESSION_EPOCH", "InvalidShareSessionEpochException", _RETRIABLE),
    124: ErrorClass("FENCED_STATE_EPOCH", "FencedStateEpochException"),
    125: ErrorClass("INVALID_VOTER_KEY", "InvalidVoterKeyException"),
    126: ErrorClass("DUPLICATE_VOTER", "DuplicateVoterException"),
    127: ErrorClass("VOTER_NOT_FOUND", "VoterNotFoundException"),
    128: ErrorClass("INVALID_REGULAR_EXPRESSION", "InvalidRegularExpression"),
    129: ErrorClass("REBOOTSTRAP_REQUIRED", "RebootstrapRequiredException"),
    130: ErrorClass("STREAMS_INVALID_TOPOLOGY", "StreamsInvalidTopologyException"),
    131: ErrorClass("STREAMS_INVALID_TOPOLOGY_EPOCH", "StreamsInvalidTopologyEpochException"),
    132: ErrorClass("STREAMS_TOPOLOGY_FENCED", "StreamsTopologyFencedException"),
    133: ErrorClass("SHARE_SESSION_LIMIT_REACHED", "ShareSessionLimitReachedException", _RETRIABLE),
}

UNKNOWN_SERVER_ERROR = -1


class ClientException(Exception):
    """An exception of Kafka's client.

    Attributes:
        class_name: the simple name of its class in Java.
        message: Kafka's message, or None.
        retriable: whether it is a RetriableException.
        cause: the exception inside, or None.
    """

    def __init__(
        self,
        class_name: str,
        message: str | None = None,
        *,
        retriable: bool = False,
        cause: ClientException | None = None,
    ) -> None:
        super().__init__(f"{class_name}: {message}")
        self.class_name = class_name
        self.message = message
        self.retriable = retriable
        self.cause = cause


def error_class(code: int) -> ErrorClass:
    """Returns what stands for a code; one that Kafka doesn't know is UNKNOWN_SERVER_ERROR (Errors.forCode)."""
    return ERROR_CLASSES.get(code, ERROR_CLASSES[UNKNOWN_SERVER_ERROR])


def exception_for(code: int, message: str | None = None) -> ClientException:
    """Returns the exception of an error code, with the answer's message where there is one."""
    known = error_class(code)
    return ClientException(known.exception, message or known.name, retriable=known.retry is not Retry.NO)


def illegal_state(message: str) -> ClientException:
    """Returns Java's IllegalStateException."""
    return ClientException("IllegalStateException", message)


def illegal_argument(message: str) -> ClientException:
    """Returns Java's IllegalArgumentException."""
    return ClientException("IllegalArgumentException", message)


def kafka_exception(message: str | None, cause: ClientException | None = None) -> ClientException:
    """Returns a KafkaException, which nothing retries."""
    return ClientException("KafkaException", message, cause=cause)


def timeout_exception(message: str, cause: ClientException | None = None) -> ClientException:
    """Returns Kafka's TimeoutException, which is retriable."""
    return ClientException("TimeoutException", message, retriable=True, cause=cause)


def disconnect_exception() -> ClientException:
    """Returns the DisconnectException of a request whose connection was lost."""
    return ClientException("DisconnectException", None, retriable=True)


#: The exceptions of the client itself that are KafkaExceptions, beside those of error codes.
_KAFKA = frozenset(
    {
        "CommitFailedException",
        "DisconnectException",
        "InterruptException",
        "KafkaException",
        "RetriableCommitFailedException",
        "WakeupException",
        *(known.exception for known in ERROR_CLASSES.values()),
    }
)


def as_kafka_exception(error: ClientException, message: str | None = None) -> ClientException:
    """Returns the error, in a KafkaException if it is none (ConsumerUtils.maybeWrapAsKafkaException)."""
    if error.class_name in _KAFKA:
        return error
    return kafka_exception(message, error)
