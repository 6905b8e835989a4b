"""What the brokers say of the service's transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from node.kafka.fetch.brokers import Brokers
from node.kafka.fetch.coordinators import Coordinators, TransactionState
from tests.support.cluster import Cluster


def last_transactions(cluster: Cluster) -> dict[str, TransactionState | None]:
    """The last one of each id of the lane."""
    return asyncio.run(_last(cluster, {suffix: cluster.names.transactional_id(0, suffix) for suffix in "ab"}))


def last_of_settings(cluster: Cluster) -> str:
    """The state of the last one that changes the settings."""
    id_ = cluster.names.settings_transactional_id
    last = asyncio.run(_last(cluster, {id_: id_}))[id_]
    assert last is not None, "they were written"
    return last.state


async def _last(cluster: Cluster, ids: Mapping[str, str]) -> dict[str, TransactionState | None]:
    brokers = Brokers({"bootstrap.servers": cluster.bootstrap})
    try:
        coordinators = Coordinators(brokers, 10_000)
        return {name: await coordinators.described(id_) for name, id_ in ids.items()}
    finally:
        await brokers.close()
