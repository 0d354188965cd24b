"""Values that several tests begin with."""

from dataclasses import replace

from millpond.model.formats import Backend, DiskFormat, ImageFormat
from millpond.model.names import ImageId, ServerId, template_name, volume_name
from millpond.model.server import (
    Content,
    DirectBoot,
    Disk,
    Firmware,
    Flavor,
    Hardware,
    ImageRef,
    Network,
    NetworkKind,
    Server,
    TemplateRef,
    VirtType,
)
from millpond.model.sizes import GiB, MiB

SERVER_ID = ServerId("8a1f6b52-0a6f-4a0e-9f1c-3d2b7f4c9e01")
IMAGE_ID = ImageId("c9a3b0de-6a54-4d1e-8d9e-1f2a3b4c5d6e")


def disk(format: DiskFormat = DiskFormat.QCOW2, *, overlay: bool = True) -> Disk:
    return Disk(
        role="disk",
        backend=Backend(format.value),
        pool="nova-disks-pool",
        volume=volume_name(SERVER_ID, "disk"),
        format=format,
        size=10 * GiB,
        target="vda",
        template=TemplateRef(
            pool="nova-base-images-pool",
            volume=template_name(IMAGE_ID, format),
            format=format,
        ),
        overlay=overlay,
    )


def server(**changes: object) -> Server:
    values: dict[str, object] = {
        "id": SERVER_ID,
        "name": "web",
        "host": "local",
        "image": ImageRef(id=IMAGE_ID, name="debian", format=ImageFormat.QCOW2),
        "flavor": Flavor(name="small", vcpus=2, memory=512 * MiB, disk=10 * GiB),
        "hardware": Hardware(),
        "disks": (disk(),),
        "created": "2026-01-02T03:04:05+00:00",
    }
    return Server(**(values | changes))  # type: ignore[arg-type]


def variables() -> Disk:
    """Of UEFI."""
    role = Content.NVRAM.value
    bare = replace(disk(DiskFormat.RAW, overlay=False), template=None, content=Content.NVRAM)
    return replace(bare, role=role, volume=volume_name(SERVER_ID, role), size=0, target="")


def busy_server() -> Server:
    """One with everything that a record can hold."""
    return server(
        name="büro 2.0",
        hardware=Hardware(
            virt_type=VirtType.KVM,
            firmware=Firmware.UEFI,
            machine="q35",
            disk_bus="scsi",
            vif_model="e1000",
        ),
        networks=(
            Network(kind=NetworkKind.USER, mac="52:54:00:00:00:01"),
            Network(kind=NetworkKind.NETWORK, source="default", mac="52:54:00:00:00:02"),
            Network(kind=NetworkKind.BRIDGE, source="br0", mac="52:54:00:00:00:03"),
        ),
        disks=(replace(disk(DiskFormat.RAW, overlay=False), target="sda"), variables()),
    )


def server_with_a_kernel() -> Server:
    """One from an ami image: its root disk has no boot loader."""
    kernel = ImageRef(id=ImageId("k"), name="vmlinuz", format=ImageFormat.AKI)
    ramdisk = ImageRef(id=ImageId("r"), name="initrd", format=ImageFormat.ARI)
    files = tuple(
        replace(
            disk(DiskFormat.RAW, overlay=False),
            role=content.value,
            volume=volume_name(SERVER_ID, content.value),
            size=3 * MiB,
            target="",
            content=content,
        )
        for content in (Content.KERNEL, Content.RAMDISK)
    )
    return server(
        image=ImageRef(id=IMAGE_ID, name="root", format=ImageFormat.AMI),
        disks=(disk(), *files),
        boot=DirectBoot(
            kernel=kernel, ramdisk=ramdisk, command_line="root=/dev/vda console=ttyS0"
        ),
    )
