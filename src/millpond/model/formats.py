"""The formats of images, of disks and of backends, and what each knows about itself."""

from enum import StrEnum

from millpond.model.sizes import MiB


class DiskFormat(StrEnum):
    """What bytes on a disk are, by libvirt's name in ``<driver type>``."""

    RAW = "raw"
    QCOW2 = "qcow2"
    VMDK = "vmdk"
    VDI = "vdi"
    VPC = "vpc"
    VHDX = "vhdx"
    PLOOP = "ploop"

    @property
    def qemu(self) -> str:
        """The name that qemu-img takes after -f and -O."""
        return "parallels" if self is DiskFormat.PLOOP else self.value

    @property
    def libvirt_makes(self) -> bool:
        """libvirt makes, fills and grows disks of this format. Of ploop it knows only directories
        that Virtuozzo's tools keep, and for one of these it takes a single file of it too."""
        return self is not DiskFormat.PLOOP

    @property
    def stays_open(self) -> bool:
        """It says of itself that somebody has it open. After a crash it still does, and QEMU
        refuses to write to it until it is checked."""
        return self is DiskFormat.PLOOP

    def most_bytes(self, size: int) -> int:
        """The longest that the file of a new disk of this size becomes, but for a few KiB. QEMU
        writes Parallels images in blocks of 1 MiB, with their table in front."""
        if self is not DiskFormat.PLOOP:
            return size
        blocks = -(-size // MiB)
        table = -(-(64 + 4 * blocks) // MiB)
        return (table + blocks) * MiB


class ImageFormat(StrEnum):
    """What an image service may declare as ``disk_format``."""

    RAW = "raw"
    QCOW2 = "qcow2"
    PLOOP = "ploop"
    VMDK = "vmdk"
    VDI = "vdi"
    VHD = "vhd"
    VHDX = "vhdx"
    ISO = "iso"
    AMI = "ami"
    AKI = "aki"
    ARI = "ari"

    @property
    def content(self) -> DiskFormat:
        """The format that the bytes of such an image must have (B11)."""
        return _CONTENT.get(self) or DiskFormat(self.value)

    @property
    def can_be_a_disk(self) -> bool:
        """A kernel (aki) or a ramdisk (ari) belongs to an ami; it is never a disk itself."""
        return self not in (ImageFormat.AKI, ImageFormat.ARI)


_CONTENT = {
    ImageFormat.VHD: DiskFormat.VPC,
    ImageFormat.ISO: DiskFormat.RAW,
    ImageFormat.AMI: DiskFormat.RAW,
    ImageFormat.AKI: DiskFormat.RAW,
    ImageFormat.ARI: DiskFormat.RAW,
}


class Backend(StrEnum):
    """Where and how a server's disk is kept (the values of images_type_mapping's right side)."""

    RAW = "raw"
    QCOW2 = "qcow2"
    LVM = "lvm"
    RBD = "rbd"
    PLOOP = "ploop"

    @property
    def has_own_pool(self) -> bool:
        """Its disks are no files, and lie in one pool of their own."""
        return self in (Backend.LVM, Backend.RBD)

    @property
    def disk_format(self) -> DiskFormat:
        """The format of the disks that this backend writes."""
        return DiskFormat.RAW if self.has_own_pool else DiskFormat(self.value)
