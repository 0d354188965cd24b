"""The DiskDescriptor.xml of a ploop directory, as Virtuozzo's tools write it."""

DISK = "{5fbaabe3-6958-40ff-92a7-860e329aab41}"
EARLIER = "{11111111-6958-40ff-92a7-860e329aab41}"


def image(file: str = "root.hds", type: str = "Compressed", id: str = DISK) -> str:
    return f"<Image><GUID>{id}</GUID><Type>{type}</Type><File>{file}</File></Image>"


def shot(id: str = DISK) -> str:
    return f"<Shot><GUID>{id}</GUID><ParentGUID>{{0}}</ParentGUID></Shot>"


def descriptor(images: str, shots: str = "", *, storages: int = 1, before: str = "") -> str:
    storage = f"<Storage><Start>0</Start><End>8192</End>{images}</Storage>"
    return (
        f"<?xml version='1.0' encoding='UTF-8'?>\n{before}<Parallels_disk_image Version='1.0'>"
        "<Disk_Parameters><Disk_size>8192</Disk_size><Padding>0</Padding></Disk_Parameters>"
        f"<StorageData>{storage * storages}</StorageData>"
        f"<Snapshots>{shots or shot()}</Snapshots></Parallels_disk_image>"
    )
