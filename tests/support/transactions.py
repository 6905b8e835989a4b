"""What the brokers say of a node's transactions."""

from __future__ import annotations

import asyncio

from node.kafka.fetch.brokers import Brokers
from node.kafka.fetch.coordinators import Coordinators, TransactionState
from tests.support.cluster import Cluster


def last_transactions(cluster: Cluster) -> dict[str, TransactionState | None]:
    """The last one of each id of the lane."""

    async def ask() -> dict[str, TransactionState | None]:
        brokers = Brokers({"bootstrap.servers": cluster.bootstrap})
        try:
            coordinators = Coordinators(brokers, 10_000)
            return {
                suffix: await coordinators.described(cluster.names.transactional_id(0, suffix))
                for suffix in "ab"
            }
        finally:
            await brokers.close()

    return asyncio.run(ask())
