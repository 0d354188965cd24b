"""millpond-nova-doctor on the real cloud."""

import libvirt
import pytest

from tests.nova.conftest import Offer
from tests.nova.domains import DISKS, disks, volumes
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack.cloud import Cloud
from tests.support.openstack.deployment import Deployment
from tests.support.openstack.user import CloudUser

pytestmark = [pytest.mark.timeout(600), pytest.mark.full]

NOBODYS = "00000000-0000-4000-8000-000000000000_disk"


def test_a_disk_that_was_never_finished_is_removed(
    user: CloudUser,
    offer: Offer,
    cloud: Cloud,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    millpond_driver.run_until("disk", "make", "end")
    server = user.begin_to_create(offer.images["raw"], offer.flavor)
    cloud.compute.await_end()
    made = volumes(hypervisor)
    assert made == {f"{server.id}_disk"}
    status, _ = millpond_driver.doctor("--mend")
    assert status == 0
    assert volumes(hypervisor) == made  # Nova says that it is being made
    cloud.admin.compute.reset_server_state(server, "error")
    status, found = millpond_driver.doctor()
    assert status == 1
    (what,) = (each for each in found if each["level"] == "problem")
    assert what["repairable"]
    assert str(server.id) in what["what"]
    assert volumes(hypervisor) == made
    status, _ = millpond_driver.doctor("--mend")
    assert status == 0
    assert volumes(hypervisor) == set()
    millpond_driver.run()
    user.delete(server)


@pytest.mark.parametrize("who", ["doctor", "driver"])
def test_disks_of_a_server_that_was_deleted_meanwhile_are_removed(
    user: CloudUser,
    offer: Offer,
    cloud: Cloud,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
    who: str,
) -> None:
    other = user.create(offer.images["qcow2"], offer.flavor)
    server = user.create(offer.images["qcow2"], offer.flavor_with_all_disks)
    mine = {each for each in volumes(hypervisor) if each.startswith(server.id)}
    assert len(mine) == 3
    cloud.compute.stop()
    with cloud.given_up(cloud.compute):
        user.delete(server)
    if who == "doctor":
        assert millpond_driver.problems("--mend") == []
        assert mine <= volumes(hypervisor)  # its domain runs
        with hypervisor.connect() as connection:
            domain = connection.lookupByUUIDString(server.id)
            domain.destroy()
            domain.undefine()
            unrecorded = f"{server.id}_disk.eph7"
            xml = f"<volume><name>{unrecorded}</name><capacity>4096</capacity></volume>"
            connection.storagePoolLookupByName(DISKS).createXML(xml)
        mine.add(unrecorded)
        status, found = millpond_driver.doctor()
        assert status == 1
        assert len([each for each in found if each["level"] == "problem"]) == len(mine)
        assert millpond_driver.problems("--mend") == []
        millpond_driver.run()
    else:
        soon = {"instance_delete_interval": 5, "running_deleted_instance_poll_interval": 5}
        millpond_driver.start(extra={"DEFAULT": soon})
        user.await_truth(lambda: not mine & volumes(hypervisor))
    assert volumes(hypervisor) == {f"{other.id}_disk"}
    user.reboot(other, "HARD")
    user.await_console(other, "BOOTS 0002")


def test_it_tells_of_what_is_wrong_and_takes_nothing_away_that_it_does_not_know(
    user: CloudUser, offer: Offer, millpond_driver: Deployment, hypervisor: PrivateLibvirtd
) -> None:
    """Next to a nova-compute that serves."""
    millpond_driver.start()
    server = user.create(offer.images["qcow2"], offer.flavor)
    user.await_console(server, "READY")
    status, found = millpond_driver.doctor()
    assert status == 0
    assert {each["level"] for each in found} == {"ok"}
    with hypervisor.connect() as connection:
        pool = connection.storagePoolLookupByName(DISKS)
        for name in ("old.img", NOBODYS):
            pool.createXML(f"<volume><name>{name}</name><capacity>4096</capacity></volume>")
        _begin_to_copy(connection.lookupByUUIDString(server.id), millpond_driver)
    before = volumes(hypervisor)
    status, found = millpond_driver.doctor("--mend")
    assert status == 0
    told = {each["check"]: each["level"] for each in found if each["level"] != "ok"}
    assert told == {"operations": "repaired", "volumes": "warning"}
    assert disks(hypervisor, server)[0].find("mirror") is None
    assert volumes(hypervisor) == before
    user.await_console(server, "TICK 0003")
    user.stop(server)
    with hypervisor.connect() as connection:
        pool = connection.storagePoolLookupByName(DISKS)
        for name in ("old.img", NOBODYS, f"{server.id}_disk"):
            pool.storageVolLookupByName(name).delete()
    status, found = millpond_driver.doctor("--mend")
    assert status == 1
    (what,) = (each for each in found if each["level"] == "problem")
    assert what["check"] == "disks"
    assert "openstack server delete" in what["do"]
    user.delete(server)


def _begin_to_copy(domain: libvirt.virDomain, deployment: Deployment) -> None:
    """As a snapshot that nobody ends."""
    target = deployment.instances.parent / "copy"
    xml = f"<disk type='file'><source file='{target}'/><driver type='raw'/></disk>"
    domain.blockCopy("vda", xml, {}, libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB)
