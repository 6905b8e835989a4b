"""Kafka: whether it answers, whether its brokers will do, the topics' settings, what this user may do."""

from __future__ import annotations

from typing import Final

from delayline.names import ClusterNames
from delayline.settings_versions import SettingsVersions
from node.config import ConnectionConfig
from ops.clients.kafka import KafkaAdmin
from ops.doctor.finding import Finding, note, ok, problem
from ops.errors import OperatorError
from ops.topics import rules
from ops.topics.rules import wanted_topics

TIMEOUT_S: Final = 5.0
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"


def examine_topics(config: ConnectionConfig, versions: SettingsVersions | None) -> list[Finding]:
    """`versions`: of the cluster's settings; None if they are not known: then nothing is compared."""
    try:
        admin = KafkaAdmin(config, timeout_s=TIMEOUT_S)
        brokers = admin.brokers()
        answers = ok("kafka", f"{config.bootstrap_servers} answers; {_counted(brokers)} up")
        few = note("kafka", "one broker is up: nothing is applied or delivered while it is away")
        findings = [answers, few] if brokers == 1 else [answers]
        return findings if versions is None else [*findings, *_of_cluster(admin, versions, brokers)]
    except OperatorError as error:
        return [problem("kafka", str(error), "until it answers, its topics cannot be looked at")]


def _counted(brokers: int) -> str:
    return "one broker is" if brokers == 1 else f"{brokers} brokers are"


def _of_cluster(admin: KafkaAdmin, versions: SettingsVersions, brokers: int) -> list[Finding]:
    settings = versions.settings
    wanted = wanted_topics(settings)
    names = ClusterNames(settings.cluster)
    actual = admin.topics([topic.name for topic in wanted])
    wrong = rules.check_availability(actual.values())
    wrong += rules.check(wanted, actual, bootstrap_servers=admin.bootstrap_servers, brokers=brokers)
    wrong += rules.check_marks(versions, actual)
    findings = [problem("topics", f"{one.topic} {one.problem}", one.mend) for one in wrong]
    if not wrong:
        findings.append(ok("topics", f"those of {settings.cluster} are as they must be"))
    return findings + _described(admin, names, list(actual))


def _described(admin: KafkaAdmin, names: ClusterNames, there: list[str]) -> list[Finding]:
    described = admin.described(there)
    findings = []
    if any(one.id == _NO_ID for one in described.values()):
        findings.append(
            problem("brokers", "they give topics no ids, so they are older than 2.8", "upgrade the brokers")
        )
    elif described:
        findings.append(ok("brokers", "they give topics ids"))
    needed = {
        names.buffer: ("READ", "WRITE"),
        names.checkpoint: ("READ",),
        names.outcomes: ("READ",),
        names.dead_letter: ("READ",),
        names.settings: ("READ", "WRITE"),
    }
    for topic, one in described.items():
        missing = [right.capitalize() for right in needed[topic] if right not in one.rights]
        if missing:
            found = f"this user may not {' or '.join(missing)} {topic}, as an operator's commands do"
            findings.append(problem("rights", found, f"give it {' and '.join(missing)} on {topic}"))
    if described and not any(finding.check == "rights" for finding in findings):
        findings.append(ok("rights", "this user may do what an operator's commands need"))
    return findings
