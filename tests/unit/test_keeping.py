"""What people change in a definition stays, unless the record says otherwise."""

from dataclasses import replace

import pytest
from lxml import etree

from millpond.model.devices import Devices, Vnc
from millpond.model.server import Firmware, Flavor, Hardware, Network, NetworkKind, PortForward
from millpond.model.sizes import GiB, MiB
from millpond.servers.domain_xml import former_xml
from millpond.xml.domain import COMMAND_LINE, DiskXml, DomainXml
from millpond.xml.keeping import keep
from millpond.xml.kept_devices import find_overlays
from tests.unit.samples import SERVER_ID, disk, server, variables
from tests.unit.test_xml import OWNER, as_domain

MAC = "52:54:00:12:34:56"
QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
DATA = replace(disk(), role="disk.data0", target="vdb", volume=f"{SERVER_ID}_disk.data0")


@pytest.fixture
def recorded():
    network = Network(kind=NetworkKind.NETWORK, source="default", mac=MAC)
    flavor = Flavor(vcpus=2, memory=GiB)
    hardware = Hardware(machine="pc-i440fx-7.2")
    return server(networks=(network,), flavor=flavor, hardware=hardware)


def present(recorded, *changes):
    """As libvirt shows it, with what somebody has changed."""
    root = etree.fromstring(as_domain(recorded).to_xml())
    for memory in (root.find("memory"), root.find("currentMemory")):
        if memory is not None:
            memory.text, memory.attrib["unit"] = str(int(memory.text) // 1024), "KiB"
    for change in changes:
        change(root)
    return etree.tostring(root, encoding="unicode")


def kept(text, after, before=None):
    made = keep(text, as_domain(after), former_xml(before or after, OWNER))
    return etree.fromstring(made.xml), made


def add(path, xml):
    return lambda root: root.find(path).append(etree.fromstring(xml))


def put(path, **attributes):
    return lambda root: root.find(path).attrib.update(attributes)


def text(path, value):
    def change(root):
        root.find(path).text = value

    return change


def drop(path):
    def change(root):
        found = root.find(path)
        found.getparent().remove(found)

    return change


OTHERS = {
    "graphics": add("devices", "<graphics type='vnc' port='5901' passwd='s'/>"),
    "video": add("devices", "<video><model type='qxl'/></video>"),
    "description": add(".", "<description>the shop</description>"),
    "usb": add("devices", "<input type='tablet' bus='usb'/>"),
    "pci": add("devices", "<hostdev mode='subsystem' type='pci'><source/></hostdev>"),
    "memballoon": add("devices", "<memballoon model='none'/>"),
    "pinning": add(".", "<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>"),
    "cpu": add(".", "<cpu mode='custom'><model>Haswell</model></cpu>"),
    "hypervisor features": add("features", "<pae/>"),
    "clock": put("clock", offset="localtime"),
    "on_crash": text("on_crash", "preserve"),
    "disk cache": put("devices/disk/driver", cache="none", discard="ignore"),
    "disk limits": add("devices/disk", "<iotune><total_iops_sec>9</total_iops_sec></iotune>"),
    "disk address": add("devices/disk", "<address type='pci' slot='0x09'/>"),
    "interface bandwidth": add(
        "devices/interface", "<bandwidth><inbound average='9'/></bandwidth>"
    ),
    "port group": put("devices/interface/source", portgroup="dmz"),
    "somebody's metadata": add("metadata", "<m xmlns='urn:other'>9</m>"),
    "no rng": drop("devices/rng"),
    "boot order": put("devices/disk/boot", order="3"),
    "a kernel": add("os", "<kernel>/rescue</kernel>"),
    "a cdrom": add(
        "devices",
        "<disk type='file' device='cdrom'><driver name='qemu' type='raw'/><source file='/x.iso'/>"
        "<target dev='hda' bus='ide'/></disk>",
    ),
    "an interface": add(
        "devices", "<interface type='bridge'><mac address='52:54:00:0:0:9'/></interface>"
    ),
    "a second serial port": add("devices", "<serial type='tcp'/>"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_the_record_does_not_speak_of_stays(recorded, what):
    before = present(recorded, OTHERS[what])
    root, made = kept(before, recorded)
    assert made.lost == ()
    assert sorted(map(shape, root.iter())) == sorted(map(shape, etree.fromstring(before).iter()))


def shape(node):
    return str(node.tag), sorted(node.attrib.items()), (node.text or "").strip()


def test_everything_at_once_stays(recorded):
    before = present(recorded, *OTHERS.values())
    root, made = kept(before, recorded)
    assert made.lost == ()
    assert len(list(root.iter())) == len(list(etree.fromstring(before).iter()))


CONTRADICTIONS = {
    "1.5 GiB of memory": text("memory", str(1536 * 1024)),
    "4 vCPUs": text("vcpu", "4"),
    "the name 'shop'": text("name", "shop"),
    "the machine type pc-q35-7.2": put("os/type", machine="pc-q35-7.2"),
    "the firmware": put("os", firmware="efi"),
    "the topology of the CPU": add(
        ".", "<cpu><topology sockets='1' cores='3' threads='1'/></cpu>"
    ),
    "disk vda at /else/where": lambda root: (
        drop("devices/disk/source")(root),
        add("devices/disk", "<source file='/else/where'/>")(root),
    ),
    "the removal of disk vda": drop("devices/disk"),
    f"the source of interface {MAC}": put("devices/interface/source", network="other"),
    f"the model of interface {MAC}": put("devices/interface/model", type="e1000"),
    f"the removal of interface {MAC}": drop("devices/interface"),
    "the change of the serial port": put("devices/serial", type="tcp"),
    "disk vdz at vol, whose format is not stated": add(
        "devices",
        "<disk type='volume' device='disk'><source pool='p' volume='vol'/>"
        "<target dev='vdz' bus='virtio'/></disk>",
    ),
    f"disk vdb at {SERVER_ID}_disk on virtio": add(
        "devices",
        f"<disk type='file' device='disk'><driver type='raw'/><source file='/p/{SERVER_ID}_disk'/>"
        "<target dev='vdb' bus='virtio'/></disk>",
    ),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_what_contradicts_the_record_is_named_and_written_as_recorded(recorded, what):
    root, made = kept(present(recorded, CONTRADICTIONS[what]), recorded)
    assert [each.replace("/p/", "") for each in made.lost] == [what]
    plain = etree.fromstring(as_domain(recorded).to_xml())
    for path in ("name", "vcpu", "devices/disk/source", "devices/interface/source"):
        assert shape(root.find(path)) == shape(plain.find(path))
    assert root.find("memory").text == str(2**20)
    assert len(root.findall("devices/disk")) == len(root.findall("devices/interface")) == 1
    assert root.find("os").get("firmware") is None
    assert root.find("os/type").get("machine") == "pc-i440fx-7.2"


def test_what_the_record_itself_changes_is_no_contradiction(recorded):
    larger = replace(
        recorded,
        flavor=Flavor(vcpus=4, memory=2 * GiB),
        networks=(Network(kind=NetworkKind.USER, mac="52:54:00:00:00:01"),),
        disks=(*recorded.disks, DATA),
        name="shop",
    )
    current = add(".", f"<currentMemory unit='KiB'>{2**20}</currentMemory>")
    root, made = kept(present(recorded, OTHERS["graphics"], current), larger, recorded)
    assert made.lost == ()
    assert (root.find("vcpu").text, root.find("memory").text) == ("4", str(2 * 2**20))
    assert root.find("currentMemory") is None
    assert [each.get("dev") for each in root.findall("devices/disk/target")] == ["vda", "vdb"]
    assert [each.get("type") for each in root.findall("devices/interface")] == ["user"]
    assert root.find("devices/graphics") is not None


def test_a_balloon_stays_unless_it_is_larger_than_the_memory(recorded):
    small = add(".", f"<currentMemory unit='KiB'>{512 * 1024}</currentMemory>")
    smaller = replace(recorded, flavor=Flavor(vcpus=2, memory=768 * MiB))
    root, _ = kept(present(recorded, small), smaller, recorded)
    assert root.find("currentMemory").text == str(512 * 1024)
    tiny = replace(recorded, flavor=Flavor(vcpus=2, memory=256 * MiB))
    root, _ = kept(present(recorded, small), tiny, recorded)
    assert root.find("currentMemory") is None


def test_what_it_can_become_is_written_and_taken_away_again(recorded):
    flavor = Flavor(vcpus=2, memory=GiB, max_vcpus=4, max_memory=2 * GiB)
    roomy = replace(recorded, flavor=flavor)

    def sizes(root):
        vcpu, current = root.find("vcpu"), root.find("currentMemory")
        text = current.text if current is not None else None
        return vcpu.get("current"), vcpu.text, text, root.find("memory").text

    root, made = kept(present(recorded), roomy, recorded)
    assert made.lost == ()
    assert sizes(root) == ("2", "4", str(2**20), str(2 * 2**20))
    root, made = kept(present(roomy), replace(roomy, flavor=replace(flavor, vcpus=4)), roomy)
    assert made.lost == ()
    assert sizes(root) == (None, "4", str(2**20), str(2 * 2**20))
    root, made = kept(present(roomy), recorded, roomy)
    assert made.lost == ()
    assert sizes(root) == (None, "2", str(2**20), str(2**20))
    current = add(".", f"<currentMemory unit='KiB'>{512 * 1024}</currentMemory>")
    changed = present(roomy, drop("currentMemory"), current)
    root, made = kept(changed, roomy, roomy)
    assert made.lost == ("512 MiB of memory at present",)
    assert sizes(root) == ("2", "4", str(2**20), str(2 * 2**20))


@pytest.mark.parametrize(("taken", "wanted"), [("2", None), ("1", "2")])
def test_a_new_disk_has_its_place_in_the_order_of_booting_if_it_is_free(recorded, taken, wanted):
    ours = as_domain(recorded)
    drive = DiskXml(type="file", device="cdrom", target="sda", bus="sata", boot_order=2)
    first = present(recorded, put("devices/disk/boot", order=taken))
    made = keep(first, replace(ours, disks=(*ours.disks, drive)), former_xml(recorded, OWNER))
    boot = etree.fromstring(made.xml).find("devices/disk[@device='cdrom']/boot")
    assert (boot is not None and boot.get("order")) == (wanted or False)


def policies(recorded, present, *, streams):
    """Of its disk, as it is defined again."""
    ours = as_domain(recorded, streams=streams)
    made = keep(present, ours, former_xml(recorded, OWNER))
    found = DomainXml.from_xml(made.xml).disk("vda")
    return made, (found.error_policy, found.read_error_policy)


def test_on_a_stream_a_disk_stops_its_guest_and_afterwards_as_before(recorded):
    first, found = policies(recorded, present(recorded), streams=True)
    assert (first.lost, found) == ((), ("stop", "stop"))
    again, found = policies(recorded, first.xml, streams=True)
    assert (again.lost, found) == ((), ("stop", "stop"))
    last, found = policies(recorded, again.xml, streams=False)
    assert (last.lost, found) == ((), (None, None))


def test_a_policy_that_somebody_chose_stays_unless_its_disk_is_on_a_stream(recorded):
    chosen = present(recorded, put("devices/disk/driver", error_policy="stop"))
    kept_, found = policies(recorded, chosen, streams=False)
    assert (kept_.lost, found) == ((), ("stop", None))
    lost, found = policies(recorded, chosen, streams=True)
    assert (lost.lost, found) == (("the error policy of vda",), ("stop", "stop"))
    first, _ = policies(recorded, present(recorded), streams=True)
    changed = first.xml.replace('rerror_policy="stop"', 'rerror_policy="report"')
    _, found = policies(recorded, changed, streams=False)
    assert found == ("stop", "report")


def test_a_disk_that_leaves_the_record_leaves_the_definition(recorded):
    larger = replace(recorded, disks=(*recorded.disks, DATA))
    root, made = kept(present(larger), recorded, larger)
    assert made.lost == ()
    assert [each.get("dev") for each in root.findall("devices/disk/target")] == ["vda"]


def test_nobody_opens_a_disk_twice(recorded):
    """Nova says it next to the source."""
    auth = "<auth username='nova'><secret type='ceph' uuid='2904d2f9'/></auth>"
    root, made = kept(present(recorded, add("devices/disk", auth)), recorded)
    assert (root.find("devices/disk/auth"), made.lost) == (None, ())


def words_of(root):
    return [each.get("value") for each in root.findall(f"{COMMAND_LINE}/*")]


def test_published_ports_follow_the_record_and_other_words_stay(recorded):
    def with_ports(*ports):
        forwards = (PortForward(address="127.0.0.1", port=each, guest=22) for each in ports)
        nic = Network(kind=NetworkKind.USER, mac="52:54:00:00:00:99", ports=tuple(forwards))
        return replace(recorded, networks=(*recorded.networks, nic))

    def hand_on(root):
        for value in ("-set", "device.net0.rombar=0"):
            node = etree.SubElement(root.find(COMMAND_LINE), f"{{{QEMU}}}arg")
            node.set("value", value)

    one, two = with_ports(2222), with_ports(2222, 2223)
    for after in (one, two):
        root, made = kept(present(one, hand_on), after, one)
        others, ours = words_of(root)[:2], words_of(root)[2:]
        assert (others, made.lost) == (["-set", "device.net0.rombar=0"], ())
        assert [each.value for each in as_domain(after).arguments] == ours
    root, _ = kept(present(one, hand_on), recorded, one)
    assert words_of(root) == ["-set", "device.net0.rombar=0"]
    root, _ = kept(present(one), recorded, one)
    assert root.find(COMMAND_LINE) is None
    root, _ = kept(present(recorded), one, recorded)
    assert words_of(root)[0] == "-netdev"


RECORDED = Devices(vnc=Vnc(port=5901), cpu="Haswell", video="vga", tpm=True)


def test_what_is_recorded_of_devices_is_written_and_taken_away_again(recorded):
    asked = replace(recorded, devices=RECORDED, description="the shop")
    root, made = kept(present(recorded), asked, recorded)
    assert made.lost == ()
    assert root.find("devices/graphics").get("port") == "5901"
    assert root.findtext("cpu/model") == "Haswell"
    assert root.find("devices/video/model").get("type") == "vga"
    assert root.find("devices/tpm/backend").get("version") == "2.0"
    assert root.findtext("description") == "the shop"
    text = etree.tostring(root, encoding="unicode")
    again, made = kept(text, asked)
    assert (made.lost, len(list(again.iter()))) == ((), len(list(root.iter())))
    plain, made = kept(text, recorded, asked)
    assert made.lost == ()
    for path in ("devices/graphics", "cpu", "devices/video", "devices/tpm", "description"):
        assert plain.find(path) is None


DEVICES_CHANGED = {
    "the VNC display": put("devices/graphics", port="5999"),
    "the video model": put("devices/video/model", type="qxl"),
    "the TPM": drop("devices/tpm"),
    "the CPU model": text("cpu/model", "Nehalem"),
    "the description": text("description", "mine"),
}


@pytest.mark.parametrize("what", DEVICES_CHANGED)
def test_what_contradicts_recorded_devices_is_named(recorded, what):
    asked = replace(recorded, devices=RECORDED, description="the shop")
    password = put("devices/graphics", passwd="s")
    root, made = kept(present(asked, password, DEVICES_CHANGED[what]), asked)
    assert made.lost == (what,)
    assert root.find("devices/graphics").get("port") == "5901"
    assert root.find("devices/graphics").get("passwd") == "s"
    assert root.findtext("cpu/model") == "Haswell"


def test_a_domain_from_before_gets_the_channel_of_the_agent(recorded):
    root, made = kept(present(recorded, drop("devices/channel")), recorded)
    assert made.lost == ()
    assert root.find("devices/channel/target").get("name") == "org.qemu.guest_agent.0"


def test_secure_boot_stays_on(recorded):
    hardware = replace(recorded.hardware, firmware=Firmware.UEFI, machine="pc-q35-7.2")
    secure = replace(recorded, hardware=hardware, devices=Devices(secure_boot=True))
    off = put("os/firmware/feature[@name='secure-boot']", enabled="no")
    root, made = kept(present(secure, off), secure)
    assert made.lost == ("secure boot that is off",)
    assert root.find("os/firmware/feature[@name='secure-boot']").get("enabled") == "yes"


def test_an_overlay_of_somebody_elses_is_seen(recorded):
    def overlay(root):
        node = root.find("devices/disk")
        source, backing = node.find("source"), node.find("backingStore")
        node.remove(source)
        node.remove(backing)
        below = etree.SubElement(node, "backingStore", type="volume")
        below.append(source)
        below.append(backing)
        etree.SubElement(node, "source", file="/snap/web.qcow2")

    there = DomainXml.from_xml(present(recorded, overlay))
    assert list(find_overlays(there, as_domain(recorded))) == ["vda by /snap/web.qcow2"]
    assert list(find_overlays(as_domain(recorded), as_domain(recorded))) == []


def test_firmware_that_somebody_names_is_uefi_too(recorded):
    uefi = replace(recorded, hardware=replace(recorded.hardware, firmware=Firmware.UEFI))

    def name_it(root):
        del root.find("os").attrib["firmware"]
        add("os", "<loader type='pflash' readonly='yes'>/my/code.fd</loader>")(root)
        add("os", "<nvram>/my/vars.fd</nvram>")(root)

    root, made = kept(present(uefi, name_it), uefi)
    assert made.lost == ()
    assert root.find("os/nvram").text == "/my/vars.fd"
    assert root.find("os").get("firmware") is None


def test_the_variables_of_uefi_are_where_the_record_says(recorded):
    hardware = replace(recorded.hardware, firmware=Firmware.UEFI)
    before = replace(recorded, hardware=hardware)
    uefi = replace(before, disks=(*before.disks, variables()))
    root, made = kept(present(before), uefi, before)
    assert (made.lost, root.findtext("os/nvram")) == ((), f"/nova-disks-pool/{variables().volume}")
    moved = text("os/nvram", f"/elsewhere/{variables().volume}")
    template = put("os/nvram", template="/OVMF_VARS.fd")
    root, made = kept(present(uefi, moved, template), uefi)
    assert (made.lost, root.findtext("os/nvram")) == ((), f"/nova-disks-pool/{variables().volume}")
    assert root.find("os/nvram").get("template") == "/OVMF_VARS.fd"
    root, made = kept(present(uefi, text("os/nvram", "/my/vars.fd")), uefi)
    assert made.lost == ("nvram /my/vars.fd",)
    secure = replace(uefi, devices=Devices(secure_boot=True))
    root, made = kept(present(uefi, template), secure, uefi)
    assert root.findtext("os/nvram") == f"/nova-disks-pool/{variables().volume}"
    assert root.find("os/nvram").get("template") is None


def test_defaults_of_ours_follow_where_nobody_has_changed_them(recorded):
    """As an older version wrote them, which noted what it wrote."""
    older = replace(as_domain(recorded), clock="localtime", on_crash="restart", rng=None)
    older = replace(older, rng_backend=None, rng_source=None)
    written = "acpi=True apic=True clock=localtime on_crash=destroy"
    older = replace(older, record=replace(older.record, written=written), memory_unit="KiB")
    ours = as_domain(recorded)
    made = keep(older.to_xml(), ours, former_xml(recorded, OWNER))
    root = etree.fromstring(made.xml)
    assert root.find("clock").get("offset") == "utc"
    assert root.find("on_crash").text == "restart"
    assert root.find("devices/rng/backend").text == "/dev/urandom"


def test_a_rescue_disk_takes_the_place_of_the_root_disk_and_gives_it_back(recorded):
    """With its address and its order of booting, whatever somebody has changed there."""
    root = recorded.get_disk()
    own = replace(root, role="disk.rescue", volume=f"{SERVER_ID}_disk.rescue")
    rescued = replace(recorded, disks=(replace(root, target="vdc"), own))
    address = "<address type='pci' domain='0x0000' bus='0x00' slot='0x04' function='0x0'/>"
    before = present(recorded, add("devices/disk", address))
    xml, made = kept(before, rescued, recorded)
    first, second = xml.findall("devices/disk")
    assert made.lost == ()
    assert (first.find("target").get("dev"), first.findtext("serial")) == ("vda", "disk.rescue")
    assert (first.find("address").get("slot"), first.find("boot").get("order")) == ("0x04", "1")
    assert (second.find("target").get("dev"), second.findtext("serial")) == ("vdc", "disk")
    assert (second.find("address"), second.find("boot")) == (None, None)
    again, _ = kept(etree.tostring(xml, encoding="unicode"), recorded, rescued)
    assert canonical(again) == canonical(etree.fromstring(before))


def canonical(domain):
    """libvirt orders what is in a device itself."""
    devices = domain.find("devices")
    for each in devices.findall("disk"):
        each[:] = sorted(each, key=lambda child: child.tag)
    return etree.tostring(devices, method="c14n2", strip_text=True)
