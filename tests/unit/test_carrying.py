"""Definitions that go to another host with their server."""

from millpond.xml.carrying import find_fixed_devices, without_paths

OURS = "52:54:00:00:00:01"
DEFINITION = f"""
<domain type="qemu"><name>web</name><title>Shop</title>
  <devices>
    <emulator>/opt/qemu</emulator>
    <interface type="user"><mac address="{OURS.upper()}"/></interface>
    <interface type="bridge"><mac address="52:54:00:00:00:02"/></interface>
    <hostdev mode="subsystem" type="usb"/>
    <hostdev mode="subsystem" type="pci"/>
    <filesystem type="mount"/>
    <watchdog model="i6300esb"/>
  </devices>
</domain>
"""


def test_the_emulator_is_the_hosts_and_all_else_goes_along():
    carried = without_paths(DEFINITION)
    assert "emulator" not in carried
    assert "<title>Shop</title>" in carried
    assert 'model="i6300esb"' in carried


def test_devices_of_the_host_and_unknown_nics_are_named():
    found = list(find_fixed_devices(DEFINITION, {OURS}))
    assert found == ["2 hostdev", "1 filesystem", "interface 52:54:00:00:00:02"]
    assert list(find_fixed_devices("<domain><devices/></domain>", {OURS})) == []
