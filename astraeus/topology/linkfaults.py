"""Findings about links: slower than their peers, missing between switches, with error counters."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from astraeus.topology.findings import RARE, Finding, Scene, port_name
from astraeus.topology.graph import Nic, Uplink
from astraeus.topology.rates import gbps, spoken
from astraeus.topology.shape import Shape

Level = dict[int, int]
"""The tier of each switch: 0 is a leaf."""


def slow_ports(scene: Scene) -> Iterator[Finding]:
    """Adapters below the usual rate of their kind, or below what both ends of the link could do."""
    shape = scene.shape
    seen: dict[int, Counter[str]] = defaultdict(Counter)
    for nic in shape.graph.nics:
        seen[nic.kind][nic.rate] += 1
    for nic in shape.graph.nics:
        usual = shape.usual.get(nic.kind, "")
        rates = seen[nic.kind]
        rare = rates[nic.rate] < RARE * rates.total()
        could = scene.scan.better.get((nic.guid, nic.port)) or scene.scan.better.get((nic.switch, nic.switch_port))
        if 0 < gbps(nic.rate) < gbps(usual) and rare:
            yield _slow_port(scene, nic, f"where its peers run at {spoken(usual)}", usual)
        elif could:
            yield _slow_port(scene, nic, f"and both ends could do {could}", could)


def _slow_port(scene: Scene, nic: Nic, instead: str, usual: str) -> Finding:
    at = scene.at(nic.switch, nic.switch_port)
    return Finding(
        kind="degraded",
        severity="warning",
        fabric=scene.names.fabric,
        place=port_name(nic),
        message=f"runs at {spoken(nic.rate)} {instead}; it is on {at}",
        cost=scene.loss(nic.host, gbps(nic.rate)),
        advice=f"Reseat or replace the cable at {at}",
        machines=(nic.host,),
        detail={"device": nic.device, "rail": scene.shape.rail(nic), "is": nic.rate, "should": usual}
        | {"leaf": scene.switch(nic.switch), "port": nic.switch_port},
    )


def slow_uplinks(scene: Scene, levels: Level) -> Iterator[Finding]:
    """Links between switches below what most of their tier run at."""
    tiers: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    found = list(_upward(scene, levels))
    for guid, link in found:
        tiers[levels[guid], levels[link.peer]][link.rate] += 1
    for guid, link in found:
        rates = tiers[levels[guid], levels[link.peer]]
        usual = max(rates, key=lambda rate: (rates[rate], gbps(rate)))
        rare = rates[link.rate] < RARE * rates.total()
        could = scene.scan.better.get((guid, link.port)) or scene.scan.better.get((link.peer, link.peer_port))
        if 0 < gbps(link.rate) < gbps(usual) and rare:
            yield _slow_uplink(scene, guid, link, f"where its peers run at {spoken(usual)}", usual)
        elif could:
            yield _slow_uplink(scene, guid, link, f"and both ends could do {could}", could)


def _slow_uplink(scene: Scene, guid: int, link: Uplink, instead: str, usual: str) -> Finding:
    return Finding(
        kind="degraded_uplink",
        severity="warning",
        fabric=scene.names.fabric,
        place=scene.at(guid, link.port),
        message=f"to {scene.at(link.peer, link.peer_port)} runs at {spoken(link.rate)} {instead}",
        cost="flows that are put on it are as slow as it is; gangs across leaf groups notice",
        advice=f"Reseat or replace the cable to {scene.at(link.peer, link.peer_port)}",
        machines=machines_under(scene, guid),
        detail={"is": link.rate, "should": usual, "peer": scene.switch(link.peer), "peer_port": link.peer_port}
        | {"gbps": gbps(link.rate)},
    )


def levels_of(scene: Scene) -> Level:
    """Tiers by distance from the leaves."""
    levels = dict.fromkeys(scene.shape.leaves, 0)
    edge = list(levels)
    while edge:
        following = []
        for guid in edge:
            for link in scene.shape.graph.between.get(guid, ()):
                if link.peer not in levels:
                    levels[link.peer] = levels[guid] + 1
                    following.append(link.peer)
        edge = following
    return levels | {guid: -1 for guid in scene.shape.graph.switches if guid not in levels}


def _upward(scene: Scene, levels: Level) -> Iterator[tuple[int, Uplink]]:
    for guid in sorted(scene.shape.graph.between):
        for link in scene.shape.graph.between[guid]:
            if levels[link.peer] > levels[guid] or (levels[link.peer] == levels[guid] and guid < link.peer):
                yield guid, link


def missing_uplinks(scene: Scene, levels: Level) -> Iterator[Finding]:
    """Switches with fewer links to the tier above than their siblings."""
    families: dict[tuple[int, int], dict[int, list[Uplink]]] = defaultdict(dict)
    for guid in scene.shape.graph.switches:
        ups = [link for link in scene.shape.graph.between.get(guid, ()) if levels[link.peer] > levels[guid] >= 0]
        if levels[guid] == 0 and guid not in scene.shape.group_of:
            continue
        families[_family(scene, levels, guid)][guid] = ups
    for members in families.values():
        totals = Counter(len(ups) for ups in members.values())
        usual = max(totals, key=lambda total: (totals[total], total))
        built = _built_with_fewer(members, usual)
        for guid, ups in sorted(members.items()):
            if len(ups) < usual and guid not in built:
                yield _missing_uplinks(scene, guid, ups, usual, members)


def _built_with_fewer(members: Mapping[int, Sequence[Uplink]], usual: int) -> set[int]:
    """Switches that several have as few links as, the same number to each of the switches above: storage's, say."""
    above = {link.peer for ups in members.values() for link in ups}
    even: dict[int, list[int]] = defaultdict(list)
    for guid, ups in members.items():
        counts = Counter(link.peer for link in ups)
        if 0 < len(ups) < usual and counts.keys() == above and len(set(counts.values())) == 1:
            even[len(ups)].append(guid)
    return {guid for guids in even.values() if len(guids) > 1 for guid in guids}


def _family(scene: Scene, levels: Level, guid: int) -> tuple[int, int]:
    """Siblings: leaves under one spine group, spines that serve it, switches of a tier above."""
    if levels[guid] == 0:
        return 0, scene.shape.groups[scene.shape.group_of[guid]].spine
    below = Counter(
        scene.shape.groups[scene.shape.group_of[link.peer]].spine
        for link in scene.shape.graph.between.get(guid, ())
        if link.peer in scene.shape.group_of
    )
    return levels[guid], below.most_common(1)[0][0] if below else -1


def _missing_uplinks(
    scene: Scene, guid: int, ups: list[Uplink], usual: int, members: dict[int, list[Uplink]]
) -> Finding:
    to, ports = _where_to(guid, ups, members)
    where = ", ".join(scene.switch(peer) for peer in to) or "the tier above"
    own = scene.switch(guid)
    at = f"; port {', '.join(map(str, ports))} should lead there" if ports else ""
    dark = [port for port in ports if (guid, port) in scene.scan.down]
    down = f" and port {', '.join(map(str, dark))} is down" if dark else ""
    return Finding(
        kind="uplink_down",
        severity="warning",
        fabric=scene.names.fabric,
        place=own,
        message=f"has {len(ups)} of {usual} links to the tier above: {usual - len(ups)} to {where} missing{at}{down}",
        cost=f"{(usual - len(ups)) / usual:.0%} less bandwidth out of {own}; gangs across leaf groups notice",
        advice=f"Check the cables of {own} to {where}",
        machines=machines_under(scene, guid),
        detail={"links": len(ups), "usual": usual, "to": [scene.switch(peer) for peer in to], "ports": ports},
    )


def machines_under(scene: Scene, guid: int) -> tuple[str, ...]:
    """The machines whose traffic to others goes up through a switch: of its leaf group, or of the groups below it."""
    shape = scene.shape
    if guid in shape.group_of:
        return tuple(shape.groups[shape.group_of[guid]].machines)
    below = {shape.group_of[link.peer] for link in shape.graph.between.get(guid, ()) if link.peer in shape.group_of}
    return tuple(name for number in sorted(below) for name in shape.groups[number].machines)


def _where_to(guid: int, ups: list[Uplink], members: dict[int, list[Uplink]]) -> tuple[list[int], list[int]]:
    """The switches that links are missing to, and the own ports that lead there on most siblings."""
    own = Counter(link.peer for link in ups)
    others = [Counter(link.peer for link in links) for other, links in members.items() if other != guid]
    short = []
    for peer in sorted({peer for counts in others for peer in counts}):
        having = Counter(counts[peer] for counts in others if counts[peer])
        usual = max(having, key=lambda many: (having[many], many))
        if 2 * having.total() > len(others) and own[peer] < usual:
            short.append(peer)
    used = {link.port for link in ups}
    ports: Counter[int] = Counter(
        link.port for other, links in members.items() if other != guid for link in links if link.peer in short
    )
    return short, sorted(port for port, many in ports.items() if 2 * many > len(others) and port not in used)


def oversubscription(scene: Scene, levels: Level) -> None:
    """Note Gb/s down over Gb/s up for every leaf group, as built and as it is."""
    shape = scene.shape
    down_live: Counter[int] = Counter()
    for nic in shape.graph.nics:
        if nic.switch in shape.group_of and nic.host in shape.home:
            down_live[shape.group_of[nic.switch]] += round(gbps(nic.rate))
    for number, group in enumerate(shape.groups):
        ups = [[link for link in shape.graph.between.get(leaf, ()) if levels[link.peer] > 0] for leaf in group.leaves]
        rates = [gbps(link.rate) for links in ups for link in links]
        if not rates or not sum(rates) or not down_live[number]:
            continue
        most = _mode([len(links) for links in ups if links])
        down = sum(_as_built(shape, host) for host in group.machines)
        group.nominal = round(down / (most * len(group.leaves) * max(rates)), 2)
        group.live = round(down_live[number] / sum(rates), 2)


def _as_built(shape: Shape, host: str) -> float:
    """Gb/s of a machine's ports when all are there; an adapter may have two."""
    ports = Counter(nic.device for nic in shape.by_host[host])
    return len(shape.devices[host]) * _mode(ports.values()) * max(gbps(nic.rate) for nic in shape.by_host[host])


def _mode(values: Iterable[int]) -> int:
    seen = Counter(values)
    return max(seen, key=lambda value: (seen[value], value))
