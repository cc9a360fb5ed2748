"""The ledger's tables and the rules that the database itself enforces.

Times are seconds since the epoch in UTC, from the database's clock, as double precision. GPU sets are bitmasks
in 64-bit integers: bit i is GPU i, so a machine has at most 63.
"""

from astraeus.ledger.schema.base import GPUS_MAX, SERIAL, metadata
from astraeus.ledger.schema.fleet import cluster, machine, nic
from astraeus.ledger.schema.messages import change, event, log_request, outbox
from astraeus.ledger.schema.network import (
    topology_fabric,
    topology_finding,
    topology_measured,
    topology_place,
    topology_scan,
)
from astraeus.ledger.schema.owners import allotment, drive, organisation, secret, template, token, workspace
from astraeus.ledger.schema.runs import allocation, claim, reservation, run, worker

__all__ = [
    "GPUS_MAX",
    "SERIAL",
    "allocation",
    "allotment",
    "change",
    "claim",
    "cluster",
    "drive",
    "event",
    "log_request",
    "machine",
    "metadata",
    "nic",
    "organisation",
    "outbox",
    "reservation",
    "run",
    "secret",
    "template",
    "token",
    "topology_fabric",
    "topology_finding",
    "topology_measured",
    "topology_place",
    "topology_scan",
    "worker",
    "workspace",
]
