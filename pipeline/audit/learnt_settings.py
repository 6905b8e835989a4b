"""By which settings the buffer is read, up to ends that were noted before.

An audit is given those that ZooKeeper has, a moment before it begins. A change may come between that and the
audit's ends: it would take the marks for nothing, and read what is behind them by the settings before. So it
asks once more, after all below its ends is decided. Then it asks the settings topic, where a change stands as
soon as its marks do (docs/design.md, rule 13); in ZooKeeper it may be missing for a while.
"""

from __future__ import annotations

from delayline.settings import FIRST_MEANING, NewerSettings
from delayline.settings_versions import SettingsVersions
from node.core.ports import Unanswered
from node.kafka.known_settings import read_settings
from pipeline.audit.config import AuditConfig
from pipeline.errors import KafkaSilent, WrongInput


def learnt_settings(config: AuditConfig) -> SettingsVersions:
    """Those of the config, or what they have become.

    Raises `WrongInput` if they are not the cluster's, or a newer version's, and `KafkaSilent`. Settings of
    the first meaning were never changed: who audits them may lack the right to read the topic.
    """
    given = config.versions
    try:
        found = read_settings(config.client_config, config.names, config.keyring).versions
        return given if found is None else given.united(found)
    except Unanswered as error:
        if given.settings.meaning == FIRST_MEANING:
            return given
        raise KafkaSilent(str(error)) from error
    except NewerSettings as error:
        raise WrongInput(f"{config.names.settings}: {error}") from error
    except ValueError as error:
        raise WrongInput(f"the settings given are not those in {config.names.settings}: {error}") from error
