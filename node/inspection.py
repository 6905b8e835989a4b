"""Whether the ground is still the one that the view was made from."""

from __future__ import annotations

import time
from typing import Final

import structlog

from election.errors import ElectionError, Malformed, ZnodeMissing
from election.operators import KafkaIds
from election.registry import Registry
from node import refusal
from node.core.ports import Unanswered
from node.current_refusal import CurrentRefusal
from node.ground import Ground, Survey
from node.kafka.checkpoints import CheckpointReader
from node.kafka.known_settings import KnownSettings
from node.kafka.topics import TopicIdentity, TopicMissing
from node.refusal import Refusing
from node.zookeeper.keyring import NodeKeyring
from store.view import View

log = structlog.get_logger("delayline.node")

INSPECT_EVERY_S: Final = 10.0


class Inspection:
    """Looks now and then, and refuses. For one thread."""

    def __init__(
        self,
        ground: Ground,
        survey: Survey,
        registry: Registry,
        current_refusal: CurrentRefusal,
        keys: NodeKeyring,
        settings: KnownSettings,
        view: View,
        checkpoint_reader: CheckpointReader,
    ) -> None:
        self._ground = ground
        self._survey = survey
        self._registry = registry
        self._current_refusal = current_refusal
        self._keys = keys
        self._settings = settings
        self._view = view
        self._checkpoint_reader = checkpoint_reader
        self._looked_s = time.monotonic()
        self._said_missing = False  # that ZooKeeper has lost the settings

    def look(self) -> None:
        """If it is time, or a leader knows of more than this node does."""
        is_early = time.monotonic() - self._looked_s < INSPECT_EVERY_S and not self._lacks_partitions()
        if is_early or self._current_refusal.own is not None:
            return
        self._looked_s = time.monotonic()
        try:
            self._compare()
        except Refusing as refusing:
            self._current_refusal.refuse(refusing.refusal)
        except TopicMissing as error:
            self._current_refusal.note(self._survey.unless_other_kafka(refusal.buffer_missing(str(error))))
        except Malformed as error:
            self._current_refusal.refuse(self._survey.unreadable(error))
        except ZnodeMissing:
            self._put_back()
        except (Unanswered, ElectionError):
            return
        else:
            self._current_refusal.note(None)
            self._said_missing = False

    def _compare(self) -> None:
        before = self._ground
        buffer, settings = self._survey.described_buffer(), self._registry.settings_versions()
        ring, known = self._keys.renew(), self._settings.versions
        self._keep_tied(buffer)
        if settings != known and settings.leads_to(known):
            self._survey.put_back(settings, ring)
        if self._survey.expect_same(before, buffer, known, settings):
            self._current_refusal.halt.set()  # begins anew, with the partitions that were added

    def _keep_tied(self, buffer: TopicIdentity) -> None:
        """A cluster that is older than the znode gets it from the first node that has read a checkpoint of
        its own: then this is the Kafka that it is in.
        """
        kafka, has_led = self._ground.kafka, self._checkpoint_reader.latest() is not None
        if self._survey.tied(kafka) is None and has_led and buffer == self._ground.buffer:
            self._registry.tie(KafkaIds(kafka, buffer.id))

    def _put_back(self) -> None:
        """ZooKeeper has lost the settings. It goes on: it knows them."""
        if not self._said_missing:
            why = self._survey.settings_missing(self._settings.versions)
            log.error("settings-missing", detail=why.detail, way_out=why.way_out)
        self._said_missing = True
        try:
            self._survey.put_back(self._settings.versions, self._keys.ring)
        except Refusing as refusing:
            self._current_refusal.refuse(refusing.refusal)
        except (Unanswered, ElectionError):
            return

    def _lacks_partitions(self) -> bool:
        """Whether a leader has heard of some that this node has not: without them it does not lead."""
        last = self._checkpoint_reader.latest()
        return last is not None and not self._view.has_applied(dict.fromkeys(last.seen, 0))
