"""What the cluster's topics must be, and what is wrong with those that are there: pure functions.

Each rule guards a guarantee: a buffer that compacts or deletes too early loses what is scheduled, one with
the producers' timestamps has no due times that every node agrees on, a checkpoint topic that deletes forgets
what was delivered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from delayline.names import ClusterNames
from delayline.settings import (
    BUFFER_MAX_MESSAGE_BYTES,
    FIRST_MEANING,
    KAFKA_MAX_MESSAGE_BYTES,
    OVERHEAD_BYTES,
    ClusterSettings,
)
from delayline.settings_versions import SettingsVersions
from delayline.times import DAY_MS, render_duration
from ops.clients.topic import Setting, Topic, WantedTopic, min_insync_replicas
from ops.clients.topic_findings import TopicFinding, alter_command, wrong_settings

# A message that falls due on the last day of max_delay must outlive an outage of the whole service; Kafka's
# own default retention is as long.
RETENTION_MARGIN_MS = 7 * DAY_MS
OUTCOMES_RETENTION_MS = 7 * DAY_MS
DEAD_LETTER_RETENTION_MS = 30 * DAY_MS
CHECKPOINT_COMPACTION_LAG_MS = DAY_MS


_NAMED = 3


def wanted_topics(settings: ClusterSettings, buffer_bytes: int = 0) -> tuple[WantedTopic, ...]:
    """The topics of a cluster: buffer, checkpoint, outcomes, dead-letter, settings. In the first meaning
    there is no topic of settings, since they never change.

    `buffer_bytes`: the largest batch that the buffer takes, if it is there.
    """
    least_bytes = least_buffer_bytes(settings)
    names = ClusterNames(settings.cluster)
    buffer, lanes = settings.partitions, settings.lanes
    changing = (settings_topic(names),) if settings.meaning > FIRST_MEANING else ()
    return (
        WantedTopic(names.buffer, buffer, "exactly", _buffer(settings, least_bytes)),
        WantedTopic(names.checkpoint, lanes, "at least", _CHECKPOINT),
        WantedTopic(
            names.outcomes,
            lanes,
            "at least",
            _outcomes(settings),
            outlives=None if settings.retention_ms is None else names.buffer,
        ),
        WantedTopic(names.dead_letter, buffer, "any", _dead_letter(max(buffer_bytes, least_bytes))),
        *changing,
    )


def settings_topic(names: ClusterNames) -> WantedTopic:
    """Of few records, which stay for ever: whoever could have one removed, by compaction say, could take
    back a change.
    """
    return WantedTopic(names.settings, 1, "exactly", _SETTINGS)


_NO_UNCLEAN = Setting(
    "unclean.leader.election.enable",
    "false",
    "exactly",
    "an out-of-date leader would take back what was acknowledged",
)


def _log_append_time(why: str) -> Setting:
    return Setting("message.timestamp.type", "LogAppendTime", "exactly", why)


_DELETE = Setting("cleanup.policy", "delete", "exactly", "compaction would remove records of the same key")


def least_buffer_bytes(settings: ClusterSettings) -> int:
    """The largest batch that the buffer has to take. In the first meaning it is that of a new one."""
    if settings.meaning == FIRST_MEANING:
        return BUFFER_MAX_MESSAGE_BYTES
    return settings.max_request_bytes + OVERHEAD_BYTES


def _buffer(settings: ClusterSettings, least_bytes: int) -> tuple[Setting, ...]:
    size = "max.message.bytes", str(least_bytes)
    why = f"a request of {settings.max_request_bytes} bytes could not be written again"
    return (
        _log_append_time("due times count from the broker's timestamp"),
        _DELETE,
        _buffer_retention(settings),
        Setting("retention.bytes", "-1", "exactly", "a size limit deletes messages that are not due yet"),
        Setting(*size, "free") if settings.meaning == FIRST_MEANING else Setting(*size, "at least", why),
        _NO_UNCLEAN,
    )


def _buffer_retention(settings: ClusterSettings) -> Setting:
    retention_ms = settings.retention_ms
    if retention_ms is not None:
        why = f"what waits is written again within the cluster's retention, {render_duration(retention_ms)}"
    else:
        # An id is known from the log alone: also for as long as a repeated request is a duplicate.
        retention_ms = settings.longest_delay_ms + settings.longest_dedup_window_ms + RETENTION_MARGIN_MS
        why = (
            "messages would be deleted before they are due: the longest delay is"
            f" {render_duration(settings.max_delay_ms)}, and what waits is not written again"
        )
    return Setting("retention.ms", str(retention_ms), "at least", why)


_CHECKPOINT = (
    _log_append_time("the brokers' clock is sampled there"),
    Setting("cleanup.policy", "compact", "exactly", "the last checkpoint must stay for ever"),
    Setting(
        "min.compaction.lag.ms",
        str(CHECKPOINT_COMPACTION_LAG_MS),
        "at least",
        "an audit reads the checkpoints of the last day",
    ),
    Setting("compression.type", "zstd", "free"),
    _NO_UNCLEAN,
)


_SETTINGS = (
    _DELETE,
    Setting("retention.ms", "-1", "exactly", "the settings must stay for ever"),
    Setting("retention.bytes", "-1", "exactly", "the settings must stay for ever"),
    Setting("max.message.bytes", str(KAFKA_MAX_MESSAGE_BYTES), "at least", "the settings are one record"),
    _NO_UNCLEAN,
)


def _outcomes(settings: ClusterSettings) -> tuple[Setting, ...]:
    retention_ms, why = OUTCOMES_RETENTION_MS, "an audit reads the outcomes of a week"
    if settings.retention_ms is not None and settings.retention_ms > retention_ms:
        retention_ms, why = settings.retention_ms, _READ_BESIDE
    return (
        _DELETE,
        Setting("retention.ms", str(retention_ms), "at least", why),
        Setting("retention.bytes", "-1", "exactly", "a size limit deletes outcomes that are still needed"),
        _NO_UNCLEAN,
    )


_READ_BESIDE = "a node that is made from the buffer reads them, too"


def _dead_letter(buffer_max_message_bytes: int) -> tuple[Setting, ...]:
    least = max(KAFKA_MAX_MESSAGE_BYTES, buffer_max_message_bytes + OVERHEAD_BYTES)
    return (
        _DELETE,
        Setting("retention.ms", str(DEAD_LETTER_RETENTION_MS), "free"),
        Setting("max.message.bytes", str(least), "free"),
        _NO_UNCLEAN,
    )


@dataclass(frozen=True, slots=True)
class RaisedSetting:
    """A setting of a topic that has to be more."""

    topic: str
    key: str
    from_value: int
    to_value: int


def raised(settings: ClusterSettings, actual: Mapping[str, Topic]) -> list[RaisedSetting]:
    """What has to be raised for these settings, of the topics that are there: how long they keep their
    records (-1: for ever), and how large these may be.
    """
    found = [
        RaisedSetting(topic.name, setting.key, int(is_now), int(setting.value))
        for topic in wanted_topics(settings)
        for setting in topic.settings
        if topic.name in actual
        and setting.rule == "at least"
        and setting.key in {"retention.ms", "max.message.bytes"}
        and not setting.allows(is_now := actual[topic.name].settings[setting.key])
    ]
    letters = actual.get(ClusterNames(settings.cluster).dead_letter)
    least_bytes = least_buffer_bytes(settings) + OVERHEAD_BYTES
    if letters is not None and (is_now_bytes := int(letters.settings["max.message.bytes"])) < least_bytes:
        found.append(RaisedSetting(letters.name, "max.message.bytes", is_now_bytes, least_bytes))
    return found


def check(
    wanted: Iterable[WantedTopic], actual: Mapping[str, Topic], *, bootstrap_servers: str, brokers: int
) -> list[TopicFinding]:
    """Compare the topics that are there with what they must be; one finding for each thing that is wrong."""
    found: list[TopicFinding] = []
    mender = _Mender(bootstrap_servers)
    for topic in wanted:
        if topic.name not in actual:
            found.append(TopicFinding(topic.name, "is missing", "delayline topics create"))
        else:
            found += _check_topic(topic, actual[topic.name], mender, brokers)
            found += _check_outlives(topic, actual, mender)
    return found + _check_dead_letter(list(wanted), actual, mender)


def check_target(
    target: str, buffer: Topic, actual: Mapping[str, Topic], *, bootstrap_servers: str
) -> list[TopicFinding]:
    """Whether a target takes every message that the buffer takes."""
    if target not in actual:
        create = f"kafka-topics.sh --bootstrap-server {bootstrap_servers} --create --topic {target}"
        return [TopicFinding(target, "is missing", create)]
    mender = _Mender(bootstrap_servers)
    return _check_size(actual[target], buffer, mender) + _check_target_insync(actual[target], mender)


def check_availability(actual: Iterable[Topic]) -> list[TopicFinding]:
    """Topics that take nothing now, whatever their settings should be."""
    return [
        TopicFinding(
            topic.name,
            f"takes nothing in {', '.join(map(str, topic.unavailable[:_NAMED]))}: no leader, or fewer than "
            f"{topic.settings['min.insync.replicas']} replicas in sync",
            "start the brokers that are away",
        )
        for topic in actual
        if topic.unavailable
    ]


def check_marks(versions: SettingsVersions, actual: Mapping[str, Topic]) -> list[TopicFinding]:
    """Whether there are partitions in which no change of settings counts, since they were added after it."""
    buffer = actual.get(ClusterNames(versions.settings.cluster).buffer)
    unmarked = [] if buffer is None else versions.unmarked(range(buffer.partitions))
    if buffer is None or not unmarked:
        return []
    named = ", ".join(map(str, unmarked[:_NAMED])) + (", ..." if len(unmarked) > _NAMED else "")
    problem = (
        f"has partitions that were added since the settings were changed, {named}: what is there is read by"
        f" version 1 of them, not by {versions.latest.number}"
    )
    mend = "delayline settings change --reason 'partitions were added' --execute"
    return [TopicFinding(buffer.name, problem, mend)]


@dataclass(frozen=True, slots=True)
class _Mender:
    bootstrap_servers: str

    def setting(self, topic: str, key: str, value: str) -> str:
        return alter_command(self.bootstrap_servers, topic, key, value)

    def partitions(self, topic: WantedTopic, actual: int) -> str:
        if actual > topic.partitions:
            return (
                "nodes deliver what is there; but producers that count the topic's partitions now send most"
                " ids to a wrong one: dead letters, wrong-partition. Have them count as the settings do"
                f" (DelayProducer: partitions={topic.partitions}), and `delayline dead-letter retry --code"
                " wrong-partition` what was sent. Kafka takes no partitions away; or begin a cluster of"
                " another name"
            )
        return (
            f"kafka-topics.sh --bootstrap-server {self.bootstrap_servers} --alter --topic {topic.name}"
            f" --partitions {topic.partitions}"
        )


def _check_topic(topic: WantedTopic, actual: Topic, mender: _Mender, brokers: int) -> list[TopicFinding]:
    found = []
    if not topic.takes(actual.partitions):
        problem = f"has {actual.partitions} partitions, the cluster's settings say {topic.partitions}"
        found.append(TopicFinding(topic.name, problem, mender.partitions(topic, actual.partitions)))
    if actual.replication < min(2, brokers):
        problem = f"has one replica on {brokers} brokers: losing that broker loses the topic"
        found.append(TopicFinding(topic.name, problem, "kafka-reassign-partitions.sh (two replicas or more)"))
    found += wrong_settings(topic, actual, mender.bootstrap_servers)
    return found + _check_insync(actual, mender)


def _check_outlives(
    topic: WantedTopic, actual: Mapping[str, Topic], mender: _Mender
) -> Iterable[TopicFinding]:
    """Beside what the cluster's settings ask for: an operator may keep the buffer for longer."""
    other = None if topic.outlives is None else actual.get(topic.outlives)
    if other is None:
        return
    least, is_now = other.settings["retention.ms"], actual[topic.name].settings["retention.ms"]
    is_shorter = is_now != "-1" and (least == "-1" or int(is_now) < int(least))
    if is_shorter and all(one.allows(is_now) for one in topic.settings if one.key == "retention.ms"):
        problem = (
            f"retention.ms is {is_now}, must be no less than that of {other.name}, {least}: {_READ_BESIDE}"
        )
        yield TopicFinding(topic.name, problem, mender.setting(topic.name, "retention.ms", least))


def _check_insync(actual: Topic, mender: _Mender) -> list[TopicFinding]:
    is_now, wanted = int(actual.settings["min.insync.replicas"]), min_insync_replicas(actual.replication)
    if is_now < wanted:
        why = (
            f"must be at least {wanted} of {actual.replication} replicas: acknowledged requests could be lost"
        )
    elif is_now >= actual.replication > 1:
        why = f"must be below {actual.replication}, the number of replicas: one broker away stops the service"
    elif is_now > actual.replication:
        why = f"must be at most {actual.replication}, the number of replicas: nothing can be written"
    else:
        return []
    problem = f"min.insync.replicas is {is_now}, {why}"
    return [
        TopicFinding(actual.name, problem, mender.setting(actual.name, "min.insync.replicas", str(wanted)))
    ]


def _check_target_insync(target: Topic, mender: _Mender) -> list[TopicFinding]:
    """How many replicas are safe is the users' own choice; but none should stop more than itself."""
    is_now = int(target.settings["min.insync.replicas"])
    if not is_now >= target.replication > 1:
        return []
    problem = (
        f"min.insync.replicas is {is_now}, should be below {target.replication}, the number of replicas: one "
        "broker away stops the target, and if a message is on its way there just then, the lane"
    )
    wanted = min_insync_replicas(target.replication)
    mend = "kafka-reassign-partitions.sh (three replicas or more)"
    if wanted > 1:  # less than two would be less safe, not more
        mend = mender.setting(target.name, "min.insync.replicas", str(wanted))
    return [TopicFinding(target.name, problem, mend)]


def _check_dead_letter(
    wanted: Sequence[WantedTopic], actual: Mapping[str, Topic], mender: _Mender
) -> list[TopicFinding]:
    buffer, _, _, dead_letter, *_ = (actual.get(topic.name) for topic in wanted)
    return _check_size(dead_letter, buffer, mender) if buffer and dead_letter else []


def _check_size(topic: Topic, buffer: Topic, mender: _Mender) -> list[TopicFinding]:
    least = int(buffer.settings["max.message.bytes"]) + OVERHEAD_BYTES
    is_now = int(topic.settings["max.message.bytes"])
    if is_now >= least:
        return []
    problem = (
        f"max.message.bytes is {is_now}, must be at least {least}: the buffer's {least - OVERHEAD_BYTES}"
        f" and {OVERHEAD_BYTES} for headers"
    )
    return [TopicFinding(topic.name, problem, mender.setting(topic.name, "max.message.bytes", str(least)))]
