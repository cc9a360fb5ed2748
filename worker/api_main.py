"""The API process: wires the HTTP app to the ledger, Temporal and the keys, and serves it. Stateless."""

import asyncio
import contextlib
import logging

import uvicorn

from activities.delivery import Courier
from api.app import create_app
from api.state import AppState
from astraeus.ledger import leases, migrate
from astraeus.ledger.changes import ChangeHub
from astraeus.ledger.core import Ledger
from astraeus.model.agent import HEARTBEAT_SECONDS
from astraeus.model.errors import AstraeusError
from worker import codec_endpoint
from worker.codec import SealingCodec
from worker.config import Settings, log_to_stderr
from worker.temporal import connect

log = logging.getLogger(__name__)

GRACE_SECONDS = 3


async def beat(ledger: Ledger) -> None:
    """Tell the ledger that machines can be heard: while no API process does, their silence means nothing."""
    while True:
        try:
            async with ledger.transaction() as tx:
                await leases.serve(tx)
        except AstraeusError as error:
            log.warning("the ledger is away: %s", error)
        await asyncio.sleep(HEARTBEAT_SECONDS)


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    ledger = Ledger(settings.ledger_url)
    hub = ChangeHub(ledger)
    try:
        await migrate.upgrade(ledger)
        await hub.start()
        client = await connect(settings, lazy=True)
        cipher = settings.cipher()
        state = AppState(
            ledger=ledger,
            hub=hub,
            delivery=Courier(ledger, client, settings.task_queue),
            cipher=cipher,
            public_url=settings.public_url,
            temporal_ui=settings.temporal_ui,
            temporal_namespace=client.namespace,
            replica_url=settings.replica_url,
            temporal_up=client.service_client.check_health,
        )
        app = create_app(state)
        if settings.codec_origin:
            app.router.routes[:0] = codec_endpoint.routes(SealingCodec(cipher), settings.codec_origin)
        host, _, port = settings.listen.rpartition(":")
        config = uvicorn.Config(
            app,
            host=host,
            port=int(port),
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            timeout_keep_alive=30,
        )
        beating = asyncio.create_task(beat(ledger))
        try:
            await uvicorn.Server(config).serve()
        finally:
            beating.cancel()
    finally:
        await hub.close()
        await ledger.close()


def main() -> None:
    """Entry point of `python -m worker.api_main`."""
    settings = Settings.from_environment()
    log_to_stderr(settings.log_level)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(settings))


if __name__ == "__main__":
    main()
