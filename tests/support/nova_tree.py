"""An instances directory as nova-compute 34 leaves it, and the domains that it defines."""

import hashlib
import json
import shutil
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path

IMAGE_ID = "70a599e0-31e7-49b7-b260-868f441e862b"
BASE = hashlib.sha1(IMAGE_ID.encode(), usedforsecurity=False).hexdigest()

# After nova/virt/libvirt/config.py; the machine as small as the micro guest.
_DOMAIN = """\
<domain type='qemu'>
  <name>{domain}</name>
  <uuid>{id}</uuid>
  <metadata>
    <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
      <nova:package version="34.0.0"/>
      <nova:name>{name}</nova:name>
      <nova:creationTime>2026-01-02 03:04:05</nova:creationTime>
      <nova:flavor name="m1.nano" id="42">
        <nova:memory>32</nova:memory><nova:disk>1</nova:disk><nova:swap>0</nova:swap>
        <nova:ephemeral>0</nova:ephemeral><nova:vcpus>1</nova:vcpus>
        <nova:extraSpecs/>
      </nova:flavor>
      <nova:image uuid="{image}"><nova:diskFormat>qcow2</nova:diskFormat></nova:image>
      <nova:owner><nova:user uuid="u">admin</nova:user></nova:owner>
      <nova:root type="image" uuid="{image}"/>
      <nova:ports/>
    </nova:instance>
  </metadata>
  <memory unit='KiB'>32768</memory>
  <vcpu placement='static'>1</vcpu>
  <sysinfo type='smbios'>
    <system><entry name='manufacturer'>OpenStack Foundation</entry></system>
  </sysinfo>
  <os><type arch='x86_64' machine='pc'>hvm</type><boot dev='hd'/><smbios mode='sysinfo'/></os>
  <features><acpi/><apic/></features>
  <clock offset='utc'/>
  <devices>
    {devices}
    <serial type='pty'><log file='{log}' append='off'/><target port='0'/></serial>
  </devices>
</domain>
"""

_DESCRIPTOR = """\
<?xml version='1.0' encoding='UTF-8'?>
<Parallels_disk_image Version="1.0">
  <Disk_Parameters><Disk_size>{sectors}</Disk_size><Cylinders>{sectors}</Cylinders>
    <Heads>1</Heads><Sectors>1</Sectors><Padding>0</Padding></Disk_Parameters>
  <StorageData><Storage><Start>0</Start><End>{sectors}</End><Blocksize>2048</Blocksize>
    {images}
  </Storage></StorageData>
  <Snapshots><Shot><GUID>{{5fbaabe3-6958-40ff-92a7-860e329aab41}}</GUID>
    <ParentGUID>{{00000000-0000-0000-0000-000000000000}}</ParentGUID></Shot></Snapshots>
</Parallels_disk_image>
"""


def ploop_descriptor(size: int, *images: tuple[str, str]) -> str:
    """``images`` are types and files; without any, the one that Nova makes."""
    listed = "".join(
        f"<Image><GUID>{{5fbaabe3-6958-40ff-92a7-860e329aab41}}</GUID>"
        f"<Type>{type_}</Type><File>{file}</File></Image>"
        for type_, file in images or (("Compressed", "root.hds"),)
    )
    return _DESCRIPTOR.format(sectors=size // 512, images=listed)


@dataclass(frozen=True, slots=True, kw_only=True)
class NovaServer:
    """One instance directory, filled by the methods as Nova's image backends fill it."""

    instances: Path
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def directory(self) -> Path:
        return self.instances / self.id

    @property
    def log(self) -> Path:
        return self.directory / "console.log"

    def flat(self, source: Path, name: str = "disk", *, recorded: str = "raw") -> Path:
        path = self._new(name)
        shutil.copyfile(source, path)
        self.record(name, recorded)
        return path

    def overlay(self, source: Path, name: str = "disk", *, base: str = BASE) -> Path:
        """Of a base that is made unless it is there."""
        cache = self.instances / "_base"
        cache.mkdir(exist_ok=True, parents=True)
        if not (cache / base).exists():
            shutil.copyfile(source, cache / base)
        return self.qcow2(name, f"backing_file={cache / base},backing_fmt=raw")

    def qcow2(self, name: str, options: str, *size: str) -> Path:
        path = self._new(name)
        words = ["qemu-img", "create", "-q", "-f", "qcow2", "-o", options, path, *size]
        subprocess.run(words, check=True)
        self.record(name, "qcow2")
        return path

    def ploop(self, source: Path, name: str = "disk") -> Path:
        """Which Nova's disk.info does not tell of."""
        path = self._new(name)
        path.mkdir()
        words = ["qemu-img", "convert", "-f", "raw", "-O", "parallels", source, path / "root.hds"]
        subprocess.run(words, check=True)
        text = ploop_descriptor(source.stat().st_size)
        (path / "DiskDescriptor.xml").write_text(text)
        return path

    def record(self, name: str, format: str) -> None:
        """As Image.resolve_driver_format writes it."""
        path = self.directory / "disk.info"
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**known, str(self.directory / name): format}) + "\n")

    def domain(self, devices: str, *, name: str = "web", domain: str = "instance-0000002a") -> str:
        self.directory.mkdir(exist_ok=True, parents=True)
        return _DOMAIN.format(
            domain=domain, id=self.id, name=name, image=IMAGE_ID, devices=devices, log=self.log
        )

    def console(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _new(self, name: str) -> Path:
        self.directory.mkdir(exist_ok=True, parents=True)
        return self.directory / name


def disk_xml(
    source: Path,
    format: str,
    target: str = "vda",
    bus: str = "virtio",
    *,
    kind: str = "file",
    device: str = "disk",
) -> str:
    attribute = {"file": "file", "block": "dev"}[kind]
    return (
        f"<disk type='{kind}' device='{device}'><driver name='qemu' type='{format}' cache='none'/>"
        f"<source {attribute}='{source}'/><target dev='{target}' bus='{bus}'/></disk>"
    )
