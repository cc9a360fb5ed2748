"""Connecting to Temporal: address, namespace, TLS and API key from Temporal's own environment configuration."""

import asyncio
import logging
from datetime import timedelta

from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import UpdateNamespaceRequest
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError

from activities.delivery import PRIORITY, SEARCH_ATTRIBUTES
from worker.codec import data_converter
from worker.config import Settings

log = logging.getLogger(__name__)

PAUSE_MOST = 5.0
RPC = timedelta(seconds=10)


async def connect(settings: Settings, lazy: bool = False) -> Client:
    """A client. Waits, with growing pauses, until the server answers, unless `lazy`."""
    config = ClientConfig.load_client_connect_config()
    config.setdefault("target_host", "127.0.0.1:7233")
    converter = data_converter(settings.cipher())
    pause = 0.1
    while True:
        try:
            return await Client.connect(**config, data_converter=converter, lazy=lazy)
        except (RuntimeError, RPCError) as error:
            level = logging.INFO if pause < 1 else logging.WARNING
            log.log(level, "Temporal at %s does not answer yet: %s", config["target_host"], error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_MOST)


async def prepare(client: Client) -> None:
    """Register the search attributes; a workflow that uses one that is missing would not get on."""
    operator = client.operator_service
    known = await operator.list_search_attributes(ListSearchAttributesRequest(namespace=client.namespace), timeout=RPC)
    missing = {
        key.name: IndexedValueType.INDEXED_VALUE_TYPE_INT
        if key is PRIORITY
        else IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
        for key in SEARCH_ATTRIBUTES
        if key.name not in known.custom_attributes
    }
    if missing:
        request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=missing)
        await operator.add_search_attributes(request, timeout=RPC)


async def keep_histories(client: Client, days: int) -> None:
    """Set how long the namespace keeps closed histories."""
    config = NamespaceConfig(workflow_execution_retention_ttl=Duration(seconds=days * 86_400))
    request = UpdateNamespaceRequest(namespace=client.namespace, config=config)
    await client.workflow_service.update_namespace(request, timeout=RPC)
