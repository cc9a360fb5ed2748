"""Scans over HTTP: what is taken, held and shown, and what the next placement makes of it."""

import base64
import gzip
from typing import Any

import pytest
import yaml
from support.fabrics import A, B, text, truth

from astraeus.model.machine import FABRIC, LEAF

FABRIC_A = "sm-0x0002c90300a1b2c3"
FILES = ("ibnetdiscover.txt", "iblinkinfo-l.txt", "ibqueryerrors.txt", "sminfo.txt")


def outputs(folder: str, *names: str) -> list[dict[str, Any]]:
    return [{"text": text(f"{folder}/{name}")} for name in names or FILES]


def facts(folder: str, name: str) -> dict[str, Any]:
    """A machine of a fixture as its agent reports it: eight GPUs, eight ports, their GUIDs, no labels."""
    built = truth(folder)
    mine = {where.partition("/")[2]: guid for guid, where in built["nic_guids"].items() if where.startswith(f"{name}/")}
    nics = [
        {"device": device, "rail": rail, "gbps": 400, "node_guid": mine.get(device)}
        for rail, device in enumerate(built["nic_order"])
    ]
    whole = {"name": name, "boot_id": "b-1", "address": "10.0.0.1", "gpus": 8, "gpu_model": "NVIDIA H100 80GB HBM3"}
    whole |= {"cpu_cores": 64, "memory_bytes": 1 << 40, "nics": nics}
    return {"name": name, "boot_id": "b-1", "facts": whole}


@pytest.fixture
async def site(world: Any) -> Any:
    """The sixteen machines of the fixtures."""
    await world.sync(*(facts(A, name) for name in truth(A)["machines"]))
    return world


async def test_a_scan_places_the_machines(site: Any) -> None:
    admin = site.client("admin")
    answer = await admin.post("/topology/scan", json={"outputs": outputs(A)})
    assert answer.status_code == 200, answer.text
    done = answer.json()
    assert (done["state"], done["machines_changed"], done["fabrics"]) == ("applied", 16, [FABRIC_A])
    assert done["findings"] == {"opened": 0, "stayed": 0, "closed": 0}
    shown = (await admin.get("/topology")).json()
    (fabric,) = shown["clusters"][0]["fabrics"]
    leaves = fabric["spines"][0]["leaves"]
    assert (fabric["name"], fabric["spines"][0]["name"]) == (FABRIC_A, "spine-g0")
    assert [(leaf["name"], len(leaf["machines"])) for leaf in leaves] == [("leaf-r0-7-g0", 8), ("leaf-r0-7-g1", 8)]
    (seen,) = shown["fabrics"]
    assert (seen["switches"], seen["adapters"], seen["other_hosts"]) == (20, 128, ["ufm-01"])
    assert seen["leaf_groups"][0]["oversubscription"] == 1.0
    again = (await admin.post("/topology/scan", json={"outputs": outputs(A)})).json()
    assert again["machines_changed"] == 0
    machine = (await admin.get("/machines/node009")).json()
    assert machine["labels"] == {**machine["labels"], LEAF: "leaf-r0-7-g1", FABRIC: FABRIC_A}


async def test_findings_open_stay_and_close(site: Any) -> None:
    admin = site.client("admin")
    first = (await admin.post("/topology/scan", json={"outputs": outputs(B)})).json()
    assert first["findings"] == {"opened": 9, "stayed": 0, "closed": 0}
    items = (await admin.get("/topology/findings")).json()["items"]
    assert (len(items), items[0]["kind"], items[0]["place"]) == (9, "port_missing", "node004 mlx5_7")
    events = [one for one in (await admin.get("/events")).json()["items"] if one["kind"] == "finding_opened"]
    assert len(events) == 9
    assert "leaf-r7-g0 port 4" in events[0]["message"]
    second = (await admin.post("/topology/scan", json={"outputs": outputs(B, "ibnetdiscover.txt")})).json()
    assert second["findings"] == {"opened": 0, "stayed": 7, "closed": 0}
    mended = text(f"{B}/ibnetdiscover.txt").replace("4xHDR", "4xNDR")
    third = (await admin.post("/topology/scan", json={"outputs": [{"text": mended}]})).json()
    assert third["findings"] == {"opened": 0, "stayed": 6, "closed": 1}
    closed = (await admin.get("/topology/findings", params={"closed": "true"})).json()["items"]
    assert [(one["place"], bool(one["closed_at"])) for one in closed] == [("node003 mlx5_4", True)]
    # The same switches without a fault, counters and all.
    fourth = (await admin.post("/topology/scan", json={"outputs": outputs(A)})).json()
    assert fourth["findings"] == {"opened": 0, "stayed": 0, "closed": 8}


async def test_a_scan_that_lost_a_fifth_is_held(site: Any) -> None:
    admin = site.client("admin")
    await admin.post("/topology/scan", json={"outputs": outputs(A)})
    less = text(f"{A}/ibnetdiscover.txt")
    kept = "".join(line for line in less.splitlines(True) if not any(f'"node0{i:02} ' in line for i in range(1, 9)))
    answer = (await admin.post("/topology/scan", json={"outputs": [{"text": kept}]})).json()
    assert (answer["state"], answer["machines_changed"]) == ("held", 0)
    assert "lost 64 of" in answer["why"]
    shown = (await admin.get("/topology")).json()
    assert shown["held"]["why"] == answer["why"]
    assert (await admin.get("/machines/node001")).json()["labels"][LEAF] == "leaf-r0-7-g0"
    applied = await admin.post("/topology/held:apply")
    assert (applied.json()["state"], applied.json()["findings"]["opened"]) == ("applied", 8)
    assert (await admin.get("/topology")).json()["held"] is None
    assert (await admin.post("/topology/held:apply")).status_code == 404
    ports = (await admin.get("/machines/node001")).json()["nics"]
    assert not any(port["up"] for port in ports)


async def test_a_held_scan_is_dropped(site: Any) -> None:
    admin = site.client("admin")
    await admin.post("/topology/scan", json={"outputs": outputs(A)})
    half = text(f"{A}/ibnetdiscover.txt")
    await admin.post("/topology/scan", json={"outputs": [{"text": half[: len(half) // 6]}]})
    assert (await admin.get("/topology")).json()["held"]
    assert (await admin.post("/topology/held:discard")).status_code == 204
    assert (await admin.get("/topology")).json()["held"] is None
    assert (await admin.post("/topology/held:discard")).status_code == 404


async def test_degraded_rails_change_the_next_placement(site: Any) -> None:
    admin = site.client("admin")
    await admin.post("/topology/scan", json={"outputs": outputs(B)})
    task = {"gpu_requests": {"count": 128}, "machines": 16}
    spec = {"task_template": {"command": "true", "requested_resources": task}}
    planned = (await admin.post("/runs:plan", json={"metadata": {"name": "all"}, "spec": spec})).json()
    # Rails 1, 4 and 7 are slow or gone somewhere: five are left for all.
    assert planned["network"]["estimate"]["basis"].startswith("5 × 400 Gb/s rails"), planned


async def test_gzip_files_and_what_is_refused(site: Any) -> None:
    admin = site.client("admin")
    packed = base64.b64encode(gzip.compress(text(f"{A}/ibnetdiscover.txt").encode())).decode()
    assert (await admin.post("/topology/scan", json={"outputs": [{"gzip": packed}]})).json()["machines_changed"] == 16
    site_file = "racks: {r1: 'node[001-008]', r2: 'node[009-016]'}"
    done = (await admin.post("/topology/scan", json={"outputs": [{"text": site_file}]})).json()
    assert (done["machines_changed"], done["fabrics"]) == (16, [])
    labels = (await admin.get("/machines/node016")).json()["labels"]
    assert (labels["topology.astraeus.io/rack"], labels[LEAF]) == ("r2", "leaf-r0-7-g1")
    for bad in ({"outputs": []}, {"outputs": [{"text": "hello"}]}, {"outputs": [{}]}, {"outputs": [{"gzip": "%"}]}):
        assert (await admin.post("/topology/scan", json=bad)).status_code == 422
    assert (await site.client("editor").post("/topology/scan", json={"outputs": outputs(A)})).status_code == 403
    assert (await admin.delete("/topology")).status_code == 204
    assert LEAF not in (await admin.get("/machines/node016")).json()["labels"]


async def test_exports(site: Any) -> None:
    admin = site.client("admin")
    await admin.post("/topology/scan", json={"outputs": outputs(A)})
    conf = (await admin.get("/topology/export/slurm")).text
    assert conf.startswith("SwitchName=leaf-r0-7-g0 Nodes=node[001-008]\n")
    assert len(list(yaml.safe_load_all((await admin.get("/topology/export/kueue")).text))) == 17
    assert "topology: astraeus" in (await admin.get("/topology/export/slurm-yaml")).text
    assert "BlockSizes=8,16" in (await admin.get("/topology/export/slurm-blocks")).text
    assert (await admin.get("/topology/export/other")).status_code == 422


async def test_measured_bandwidths_replace_the_factor(site: Any) -> None:
    admin = site.client("admin")
    await admin.post("/topology/scan", json={"outputs": outputs(A)})
    body = {"rung": "leaf", "gpu_model": "H100", "rails": 8, "gbps": 400}
    for value in (340.0, 352.0, 360.0):
        answer = await admin.post("/topology/measured", json={**body, "busbw_gbps": value})
        assert answer.status_code == 201, answer.text
    assert answer.json() == {"rung": "leaf", "gpu_model": "h100", "value": 0.88, "measurements": 3}
    assert (await admin.get("/topology")).json()["measured"] == [answer.json()]
    task = {"gpu_requests": {"count": 64}, "machines": 8}
    spec = {"task_template": {"command": "true", "requested_resources": task}}
    planned = (await admin.post("/runs:plan", json={"metadata": {"name": "all"}, "spec": spec})).json()
    assert planned["network"]["estimate"]["busbw_gbps"] == 352.0
    assert planned["network"]["estimate"]["basis"] == "8 × 400 Gb/s rails, × 0.88, measured on this cluster"
    for bad in (
        {"busbw_gbps": 1.0},
        {**body, "busbw_gbps": 3520},
        {"busbw_gbps": 3.0, "rung": "leaf", "gpu_model": "x"},
    ):
        assert (await admin.post("/topology/measured", json=bad)).status_code in (400, 422)
    assert (await admin.post("/topology/measured", json={"busbw_gbps": 3.0, "run": "none"})).status_code == 404
