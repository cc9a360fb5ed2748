"""Findings about cables: in the wrong leaf, on a spine, missing, with owners that nobody can tell."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from astraeus.topology.findings import Finding, Scene, port_name
from astraeus.topology.graph import Nic
from astraeus.topology.owners import described, natural
from astraeus.topology.scan import Node, guid_text

LISTED = 8


def miswired(scene: Scene) -> Iterator[Finding]:
    """Ports on another leaf than their rail's, two exchanged ones of a machine as one finding; ports on spines."""
    shape = scene.shape
    crossed: dict[str, list[Nic]] = defaultdict(list)
    for nic in shape.graph.nics:
        home = shape.home.get(nic.host)
        if nic.switch not in shape.leaves:
            yield _on_a_spine(scene, nic)
        elif home is None:
            continue
        elif shape.group_of.get(nic.switch) != home:
            yield _other_group(scene, nic)
        elif (rail := shape.groups[home].rail_of.get(nic.switch)) is not None and shape.rail(nic) not in (None, rail):
            crossed[nic.host].append(nic)
    for host in sorted(crossed, key=natural):
        yield from _crossed(scene, crossed[host])


def _crossed(scene: Scene, nics: list[Nic]) -> Iterator[Finding]:
    left = sorted(nics, key=lambda nic: natural(nic.device))
    while left:
        nic = left.pop(0)
        should = scene.should(nic.host, scene.shape.rail(nic))
        other = next(
            (
                one
                for one in left
                if one.switch == should and scene.should(one.host, scene.shape.rail(one)) == nic.switch
            ),
            None,
        )
        if other is None:
            yield _wrong_rail(scene, nic, should)
            continue
        left.remove(other)
        yield Finding(
            kind="miswired",
            severity="warning",
            fabric=scene.names.fabric,
            place=f"{nic.host} {nic.device} and {other.device}",
            message=f"{nic.device} is on {scene.at(nic.switch, nic.switch_port)} and {other.device} on "
            f"{scene.at(other.switch, other.switch_port)}: the two cables are swapped",
            cost="two of its rails take a hop more to every other machine",
            advice=f"Swap the cables at {scene.at(nic.switch, nic.switch_port)} and "
            f"{scene.at(other.switch, other.switch_port)}",
            machines=(nic.host,),
            detail={"how": "swap", "devices": [nic.device, other.device], "is": _names(scene, nic, other)},
        )


def _names(scene: Scene, *nics: Nic) -> list[str]:
    return [scene.switch(nic.switch) for nic in nics]


def _wrong_rail(scene: Scene, nic: Nic, should: int | None) -> Finding:
    to = f"; it belongs on {scene.at(should, scene.usual_port(nic.host))}" if should is not None else ""
    return Finding(
        kind="miswired",
        severity="warning",
        fabric=scene.names.fabric,
        place=port_name(nic),
        message=f"is on {scene.at(nic.switch, nic.switch_port)}, the leaf of another rail{to}",
        cost="one rail takes a hop more to every other machine",
        advice="Move the cable" + (f" to {scene.at(should, scene.usual_port(nic.host))}" if should is not None else ""),
        machines=(nic.host,),
        detail=_detail(scene, nic, "other_rail", should),
    )


def _other_group(scene: Scene, nic: Nic) -> Finding:
    should = scene.should(nic.host, scene.shape.rail(nic))
    home = scene.names.leaf_groups[scene.shape.home[nic.host]]
    port = scene.usual_port(nic.host)
    to = scene.at(should, port) if should is not None else f"leaf group {home}"
    return Finding(
        kind="miswired",
        severity="warning",
        fabric=scene.names.fabric,
        place=port_name(nic),
        message=f"is on {scene.at(nic.switch, nic.switch_port)}, outside its leaf group {home}; it belongs on {to}",
        cost=f"{nic.host} is not one hop away on every rail: this rail crosses the spine",
        advice=f"Move the cable to {to}",
        machines=(nic.host,),
        detail=_detail(scene, nic, "other_group", should),
    )


def _on_a_spine(scene: Scene, nic: Nic) -> Finding:
    should = scene.should(nic.host, scene.shape.rail(nic))
    to = scene.at(should, scene.usual_port(nic.host)) if should is not None else "a leaf"
    return Finding(
        kind="nic_on_spine",
        severity="warning",
        fabric=scene.names.fabric,
        place=port_name(nic),
        message=f"is on {scene.at(nic.switch, nic.switch_port)}, which is no leaf",
        cost="its traffic takes other ways than its rail's, and takes an uplink's port",
        advice=f"Move the cable to {to}",
        machines=(nic.host,),
        detail=_detail(scene, nic, "spine", should),
    )


def _detail(scene: Scene, nic: Nic, how: str, should: int | None) -> dict[str, object]:
    return {
        "how": how,
        "device": nic.device,
        "is": scene.switch(nic.switch),
        "port": nic.switch_port,
        "should": None if should is None else scene.switch(should),
    }


def homeless(scene: Scene) -> Iterator[Finding]:
    """Machines whose ports are spread so evenly over leaf groups that none is their home."""
    for host in scene.shape.homeless:
        where = sorted({scene.switch(nic.switch) for nic in scene.shape.by_host[host]}, key=natural)
        yield Finding(
            kind="no_home",
            severity="warning",
            fabric=scene.names.fabric,
            place=host,
            message=f"has no leaf group that most of its ports are in; they are on {_some(where)}",
            cost="it is placed by its fabric alone",
            advice="Check its cables against the plan of the site",
            machines=(host,),
        )


def missing(scene: Scene) -> Iterator[Finding]:
    """Ports that a machine's siblings have and it lacks, with the leaf port where they belong.

    A rail that no machine of a leaf group has is one finding: its leaf is down or away.
    """
    shape = scene.shape
    lacking: dict[tuple[int | None, int, str], list[str]] = defaultdict(list)
    for host in sorted(shape.by_host, key=natural):
        present = {nic.device for nic in shape.by_host[host]}
        for rail, device in enumerate(shape.devices[host]):
            if device not in present:
                lacking[shape.home.get(host), rail, device].append(host)
    for (home, rail, device), hosts in lacking.items():
        if home is not None and len(hosts) > 1 and len(hosts) == len(shape.groups[home].machines):
            yield _leaf_missing(scene, home, rail, device)
        else:
            yield from (_missing(scene, host, rail, device) for host in hosts)


def _leaf_missing(scene: Scene, home: int, rail: int, device: str) -> Finding:
    group, name = scene.shape.groups[home], scene.names.leaf_groups[home]
    return Finding(
        kind="leaf_missing",
        severity="error",
        fabric=scene.names.fabric,
        place=f"{name} rail {rail}",
        message=f"none of the {len(group.machines)} machines has a link at {device}: the leaf of this rail is away",
        cost=scene.loss(group.machines[0], 0.0).replace(f"on {group.machines[0]}", f"in {name}"),
        advice="See whether the leaf switch has power and its firmware runs, then its uplinks",
        machines=tuple(group.machines),
        detail={"device": device, "rail": rail, "group": name},
    )


def _missing(scene: Scene, host: str, rail: int, device: str) -> Finding:
    leaf = scene.should(host, rail)
    port = scene.usual_port(host) if leaf is not None else None
    if leaf is None:
        on = {nic.switch for nic in scene.shape.by_host[host]}
        leaf = on.pop() if len(on) == 1 else None
    taken = leaf is not None and port is not None and (leaf, port) in scene.shape.graph.used
    where = f"a leaf of rail {rail}" if leaf is None else scene.at(leaf, None if taken else port)
    dark = leaf is not None and port is not None and (leaf, port) in scene.scan.down
    seen = f"; {where} is down too" if dark else ""
    return Finding(
        kind="port_missing",
        severity="error",
        fabric=scene.names.fabric,
        place=f"{host} {device}",
        message=f"has no link{seen}; its siblings have one on this rail, and it belongs on {where}",
        cost=scene.loss(host, 0.0),
        advice=f"Check the cable between {host} {device} and {where}, then the adapter itself",
        machines=(host,),
        detail={
            "device": device,
            "rail": rail,
            "leaf": None if leaf is None else scene.switch(leaf),
            "port": None if taken else port,
        },
    )


def absent(scene: Scene) -> Iterator[Finding]:
    """Machines that the last scan saw and this one does not."""
    known = scene.names.known
    here = scene.shape.by_host.keys() | {nic.host for nic in scene.shape.graph.others}
    for host in sorted((known.machines if known else frozenset()) - here, key=natural):
        yield Finding(
            kind="machine_missing",
            severity="error",
            fabric=scene.names.fabric,
            place=host,
            message="was on this fabric and none of its ports is now",
            cost=f"nothing can be placed over InfiniBand on {host}",
            advice="See whether it is up; then check its adapters",
            machines=(host,),
        )


def isolated(scenes: Sequence[Scene]) -> Iterator[Finding]:
    """Machines that reach no other: alone on a fabric, while another fabric has most of the cluster."""
    most = max((len(scene.shape.by_host) for scene in scenes), default=0)
    beside = Counter(host for scene in scenes for host in scene.shape.by_host)
    for scene in scenes:
        hosts = list(scene.shape.by_host)
        if most > len(hosts) == 1 and beside[hosts[0]] == 1:
            where = sorted({scene.switch(nic.switch) for nic in scene.shape.by_host[hosts[0]]}, key=natural)
            yield Finding(
                kind="isolated",
                severity="error",
                fabric=scene.names.fabric,
                place=hosts[0],
                message=f"reaches no other machine: {_some(where)} and the fabrics of the others are not joined",
                cost="it takes part in no gang of several machines over InfiniBand",
                advice=f"Check the uplinks of {_some(where)}",
                machines=(hosts[0],),
            )


def owners_unknown(scene: Scene) -> Iterator[Finding]:
    """Adapters whose machine cannot be told: never set, set twice, or named after a machine that disowns them."""
    by_leaf: dict[int, list[Nic]] = defaultdict(list)
    unset = {node.guid for node in scene.owners.unset}
    for nic in scene.shape.graph.nameless:
        if nic.guid in unset:
            by_leaf[nic.switch].append(nic)
    for leaf, nics in sorted(by_leaf.items()):
        ports = sorted(nic.switch_port for nic in nics)
        yield Finding(
            kind="unnamed",
            severity="warning",
            fabric=scene.names.fabric,
            place=scene.switch(leaf),
            message=f"{len(nics)} adapters without a usable description on port {_some(list(map(str, ports)))}",
            cost="these ports are placed on no machine",
            advice="Run the agent on their machines, or set their node descriptions (rdma-ndd)",
            detail={"ports": ports, "guids": [guid_text(nic.guid) for nic in nics]},
        )
    here = {nic.guid for nic in scene.shape.graph.nameless}
    for (host, device), nodes in sorted(scene.owners.doubled.items()):
        if any(node.guid in here for node in nodes):
            yield _doubled(scene, host, device, nodes)
    for node in scene.owners.foreign:
        if node.guid in here:
            yield _foreign(scene, node)


def _doubled(scene: Scene, host: str, device: str, nodes: list[Node]) -> Finding:
    return Finding(
        kind="duplicate_name",
        severity="warning",
        fabric=scene.names.fabric,
        place=f"{host} {device}",
        message=f"{len(nodes)} adapters say they are this: {_some([guid_text(node.guid) for node in nodes])}",
        cost="none of them is placed on a machine",
        advice="Run the agent on these machines, or set their node descriptions",
        machines=(host,),
    )


def _foreign(scene: Scene, node: Node) -> Finding:
    host = (described(node.description) or ("", ""))[0]
    return Finding(
        kind="foreign_name",
        severity="warning",
        fabric=scene.names.fabric,
        place=guid_text(node.guid),
        message=f"calls itself {node.description!r}, but the agent of {host} has no adapter with this GUID",
        cost="it is placed on no machine",
        advice="Run the agent on the machine it is in, or set its node description",
        machines=(host,),
    )


def strangers(scene: Scene) -> Iterator[Finding]:
    """Machines on the fabric that no agent reports."""
    if not scene.inventory.machines:
        return
    found = sorted(scene.shape.by_host.keys() - scene.inventory.machines, key=natural)
    if found:
        yield Finding(
            kind="unknown_machine",
            severity="info",
            fabric=scene.names.fabric,
            place=scene.names.fabric,
            message=f"{len(found)} hosts that this cluster does not have: {_some(found)}",
            cost="nothing is placed on them",
            advice="Start the agent on them, or leave them to whoever owns them",
            detail={"hosts": found},
        )


def _some(words: list[str]) -> str:
    more = f" and {len(words) - LISTED} more" if len(words) > LISTED else ""
    return ", ".join(words[:LISTED]) + more
