"""What a decision of the scheduler costs: Placement's part, and ours.

python -m tests.bench.scheduler PLOT      needs root; prints a table, and draws it
"""

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from urllib.parse import urlencode
from uuid import uuid4

from millpond.model.names import ServerId
from millpond.scheduling.api import Answer, Transport
from millpond.scheduling.decision import Decision
from millpond.scheduling.embedded import EmbeddedPlacement
from millpond.scheduling.external import ExternalPlacement
from millpond.scheduling.placement import Placement
from millpond.scheduling.traits import IMAGE_TYPES
from millpond.scheduling.weigh import HostWeights, Multipliers, weigh
from tests.bench.plot import Line, plot
from tests.support.openstack.crowd import crowd, name_of
from tests.support.openstack.mariadb import MariaDb
from tests.support.openstack.placement import Placement as Service
from tests.support.scheduling import Hosts, plan, request, uuid_of
from tests.support.session import session_directory

SIZES = (100, 1000, 5000)
RUNS = 7
VERSION = "1.39"

HEAD = """\
# A decision of the scheduler

{date}, {machine}, Python {python}, {load}. `make bench-scheduler` writes this page.
Every host is a provider with a pool beneath it, 16 traits and no servers; nine of ten take qcow2
images, the tenth vmdk images. SQLite is the embedded Placement, in the same process; MariaDB is
beneath a Placement as a service on this machine. Medians of {runs} runs, after one that is not
counted.

The *bare query* is the scheduler's own, put to the same Placement, with its answer thrown away. A
*decision* asks it, looks at every host that is offered, weighs all of them and ends before the
claim. *Ours* is what it takes next to Placement: reading the answer and all that follows. At most
20 ms and a fifth of the bare query are *allowed*. The *peer* is the other way to do it: all hosts
are fetched, whatever they can do, and looked through here.

| database | hosts | image | bare query | decision | ours | allowed | claim | peer |
|---|---|---|---|---|---|---|---|---|"""


class Timing:
    """A transport with a clock."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.seconds = 0.0

    def ask(self, method: str, path: str, version: str, body: bytes | None) -> Answer:
        start = time.perf_counter()
        try:
            return self._transport.ask(method, path, version, body)
        finally:
            self.seconds += time.perf_counter() - start


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    database: str
    hosts: int
    image: str
    bare: float
    decision: float
    ours: float
    claim: float
    peer: float

    @property
    def allowed(self) -> float:
        return 0.02 + 0.2 * self.bare

    def row(self) -> str:
        times = (self.bare, self.decision, self.ours, self.allowed, self.claim, self.peer)
        cells = (
            self.database,
            self.hosts,
            self.image,
            *(f"{1000 * each:.0f} ms" for each in times),
        )
        return f"| {' | '.join(map(str, cells))} |"


def median(act: Callable[[], float]) -> float:
    act()
    return statistics.median(act() for _ in range(RUNS))


def seconds(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def measured(database: str, transport: Transport, hosts: int, image: str) -> Result:
    timing = Timing(transport)
    placement = Placement(timing)
    names = {name_of(number): uuid_of(name_of(number)) for number in range(hosts)}
    known = Hosts(placement, *names)
    query = known.scheduler.query(request(image))
    path = f"/allocation_candidates?{urlencode(list(query.params()))}"
    there = plan()

    def decide() -> Decision:
        return known.decide(request(image), lambda _: there)

    def ours() -> float:
        timing.seconds = 0.0
        return seconds(decide) - timing.seconds

    def claim() -> float:
        best, *_ = decide().choices
        server = replace(there.server, id=ServerId(str(uuid4())), host=best)
        return seconds(lambda: known.claims.hold(server))

    takers = {"qcow2": hosts * 9 // 10, "vmdk": hosts // 10}
    assert len(decide().choices) == takers[image]
    return Result(
        database=database,
        hosts=hosts,
        image=image,
        bare=median(lambda: seconds(lambda: transport.ask("GET", path, VERSION, None))),
        decision=median(lambda: seconds(decide)),
        ours=median(ours),
        claim=median(claim),
        peer=median(lambda: seconds(lambda: filter_here(placement, names, image))),
    )


def filter_here(placement: Placement, names: dict[str, str], image: str) -> str:
    """All hosts with their traits, as a scheduler without request filters gets them."""
    known = {uuid: name for name, uuid in names.items()}
    fetched = placement.with_free({"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 5})
    wanted = {
        known[uuid]: HostWeights(
            native=True, cached=False, disk=0, memory=summary.resources["MEMORY_MB"].free
        )
        for uuid, summary in fetched.items()
        if uuid in known and IMAGE_TYPES[image] in summary.traits
    }
    return next(iter(weigh(wanted, Multipliers())))


def growing(database: str, url: str, transport: Transport, directory: Path) -> Iterator[Result]:
    directory.mkdir(exist_ok=True)
    Placement(transport).providers.find()  # makes the tables
    for before, hosts in zip((0, *SIZES), SIZES, strict=False):
        crowd(url, range(before, hosts), directory)
        for image in ("qcow2", "vmdk"):
            result = measured(database, transport, hosts, image)
            print(result.row(), flush=True)
            yield result


def lines(results: Sequence[Result]) -> Iterator[Line]:
    for database in ("SQLite", "MariaDB"):
        for image, label, name in (
            ("qcow2", "decision, qcow2", "decision"),
            ("vmdk", "decision, vmdk", "decision"),
            ("qcow2", "peer", "peer"),
        ):
            those = [each for each in results if (each.database, each.image) == (database, image)]
            yield Line(f"{database}: {label}", [(r.hosts, getattr(r, name)) for r in those])


def main(target: Path) -> None:
    os.environ["NO_PROXY"] = "127.0.0.1"
    stated = {"machine": platform.machine(), "python": platform.python_version(), "runs": RUNS}
    load = f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}"
    print(HEAD.format(date=date.today(), load=load, **stated), flush=True)
    with session_directory() as directory, MariaDb(directory / "mariadb", "placement") as mariadb:
        own = directory / "embedded"
        embedded = EmbeddedPlacement(own)
        results = [*growing("SQLite", f"sqlite:///{own}/placement.sqlite", embedded, own)]
        url = mariadb.url("placement")
        with Service(directory / "placement", database=url) as service:
            external = ExternalPlacement(service.access(), directory / "external")
            results += growing("MariaDB", url, external, directory / "external")
    lines = [
        Line(
            f"{database}, {image}: {label}",
            [(r.hosts, pick(r)) for r in results if (r.database, r.image) == (database, image)],
        )
        for database in ("SQLite", "MariaDB")
        for image, label, pick in (
            ("qcow2", "decision", lambda r: r.decision),
            ("vmdk", "decision", lambda r: r.decision),
            ("vmdk", "peer", lambda r: r.peer),
        )
    ]
    target.write_text(plot("hosts", "seconds", lines))
    print(f"\n![The table as a plot]({target.name})")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
