"""What is wrong with a topic that is there, and the command that mends it."""

from __future__ import annotations

from dataclasses import dataclass

from ops.clients.topic import Setting, Topic, WantedTopic


@dataclass(frozen=True, slots=True)
class TopicFinding:
    """One thing that is wrong with one topic, and the command that mends it."""

    topic: str
    problem: str
    mend: str


def wrong_settings(wanted: WantedTopic, actual: Topic, bootstrap_servers: str) -> list[TopicFinding]:
    """The settings that are not as they must be."""
    found = []
    for setting in wanted.settings:
        is_now = actual.settings.get(setting.key, "")
        if not setting.allows(is_now):
            problem = f"{setting.key} is {is_now}, must be {_demand(setting)}: {setting.why}"
            mend = alter_command(bootstrap_servers, wanted.name, setting.key, setting.value)
            found.append(TopicFinding(wanted.name, problem, mend))
    return found


def alter_command(bootstrap_servers: str, topic: str, key: str, value: str) -> str:
    """What sets a topic's setting."""
    return (
        f"kafka-configs.sh --bootstrap-server {bootstrap_servers} --alter --entity-type topics"
        f" --entity-name {topic} --add-config {key}={value}"
    )


def _demand(setting: Setting) -> str:
    return setting.value if setting.rule == "exactly" else f"{setting.rule} {setting.value}"
