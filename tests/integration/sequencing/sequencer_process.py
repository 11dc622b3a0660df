"""A Sequence Service over Redis as a process of its own, to be killed: prints its port and serves.

python -m tests.integration.sequencing.sequencer_process redis://127.0.0.1:6379/0
"""

import asyncio
import os
import sys

from parley.clock import wall_clock
from parley.core.cluster_keys import ClusterKeys
from parley.sequencing.redis import RedisAllocator
from parley.sequencing.service import Sequencer
from parley.telemetry import Metrics
from tests.contracts.allocators import SECRET


async def serve(redis_url: str) -> None:
    metrics = Metrics(wall_clock)
    counters = RedisAllocator(redis_url)
    sequencer = Sequencer(
        counters,
        host="127.0.0.1",
        port=0,
        keys=ClusterKeys(SECRET),
        name=f"sequencer.{os.getpid()}",
        clock=wall_clock,
        metrics=metrics,
    )
    print(await sequencer.start(), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
