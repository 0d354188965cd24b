"""Images, and the templates that are made of them."""

from dataclasses import dataclass

from millpond.errors.base import (
    Conflict,
    HostProblem,
    NotFound,
    Refused,
    ServiceProblem,
    ToolProblem,
)


@dataclass(eq=False)
class ImageNotFound(NotFound):
    image: str
    question: str = ""
    """Whether another one was meant."""
    message = "there is no image {self.image!r}"
    hint = "{self.question}'{tool.IMAGES}' shows what there is, '{tool.ADD_IMAGE}' adds one"


@dataclass(eq=False)
class TemplateNotFound(NotFound):
    template: str
    message = "there is no template {self.template!r}, and none of an image of that name"
    hint = "'{tool.TEMPLATES}' shows what there is, '{tool.FETCH_TEMPLATE}' prepares one"


@dataclass(eq=False)
class VolumeMissing(NotFound):
    location: str
    message = "an image is said to lie at {self.location}, and nothing is there"
    hint = "upload it to its source again, or ask who runs that"


@dataclass(eq=False)
class ImageInUse(Conflict):
    image: str
    servers: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    message = "image {self.image!r} is needed by {self.listed}"
    hint = "remove what needs it first"

    @property
    def listed(self) -> str:
        return ", ".join([*self.servers, *(f"image {each!r}" for each in self.images)])


@dataclass(eq=False)
class ImageNotActive(Conflict):
    image: str
    status: str
    message = "image {self.image!r} cannot be used now: its status in Glance is {self.status!r}"
    hint = "'openstack image show {self.image}' says more; it must be 'active'"


@dataclass(eq=False)
class VolumeNotReady(Conflict):
    volume: str
    status: str
    message = "volume {self.volume} of Cinder, which has an image, is in the state {self.status}"
    hint = "'openstack volume show {self.volume}' may say why; wait, or upload the image again"


@dataclass(eq=False)
class TemplateInUse(Conflict):
    template: str
    users: tuple[str, ...]
    message = "template {self.template} is the base of {self.listed}"
    hint = "delete those disks first"

    @property
    def listed(self) -> str:
        return ", ".join(self.users)


@dataclass(eq=False)
class ImageRefused(Refused):
    image: str
    reason: str
    advised: str = ""
    message = "image {self.image} is refused: {self.reason}"
    hint = "{self.advised}"


@dataclass(eq=False)
class NotLinkable(Refused):
    reason: str
    message = "an image cannot be linked: {self.reason}"
    hint = "see docs/linking.md for what can be; with another handler it is downloaded"


@dataclass(eq=False)
class NotStreamable(Refused):
    reason: str
    message = "an image cannot be streamed: {self.reason}"
    hint = "see docs/streaming.md for what can be; otherwise it is downloaded"


@dataclass(eq=False)
class StreamNotServed(HostProblem):
    template: str
    reason: str
    message = "template {self.template} is still arriving, and nobody serves it: {self.reason}"
    hint = "'{tool.TEMPLATES}' shows how far it is, '{tool.REPAIR}' tries to serve it again"


@dataclass(eq=False)
class VolumeNotConnected(ToolProblem):
    reason: str
    message = "a volume of Cinder cannot be reached from this host: {self.reason}"
    hint = "see docs/linking.md for what a host needs; images are downloaded meanwhile"


@dataclass(eq=False)
class CacheOwnedByAnother(HostProblem):
    pool: str
    volume: str
    owner: str
    message = (
        "the cache whose records are in pool {self.pool!r} is that of another host or state "
        "directory ({self.owner})"
    )
    hint = (
        "give each host that only libvirt reaches a base_images_pool_path of its own; if that "
        "state directory is lost: 'virsh vol-delete {self.volume} --pool {self.pool}' on the host"
    )


@dataclass(eq=False)
class CacheFull(HostProblem):
    needed: str
    bound: str
    taken: str
    message = (
        "the cache may have {self.bound} (max_bytes): a template of {self.needed} does not fit "
        "next to {self.taken} that are used or pinned"
    )
    hint = "raise [image_cache] max_bytes, or release what '{tool.TEMPLATES}' shows as used"


@dataclass(eq=False)
class UploadFailed(ServiceProblem):
    image: str
    reason: str
    message = "image {self.image} cannot be uploaded: {self.reason}"
    hint = "check that Glance answers, and what it lets this user store; then try again"
