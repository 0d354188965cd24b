"""What all hosts share: images, and the records of servers."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name

from millpond.config import ImageSourceOption, Settings
from millpond.errors import NotFound, Tool, Unsupported
from millpond.images.catalogue import Catalogue
from millpond.images.source import Library, SignatureCheck, TakesUploads
from millpond.model.image import Image
from millpond.model.names import ServerId, begun_by, did_you_mean, pick
from millpond.model.server import Server
from millpond.records.records import FileRecords, Records, RecordsOfHosts
from millpond.system.locks import Locks


class Shared:
    """Everything is made when it is first asked for."""

    def __init__(self, settings: Settings, records: Records | None = None) -> None:
        """``records`` are for a program that has a place of its own for them, as Nova has."""
        self.settings = settings
        self.locks = Locks(settings.state_path / "locks")
        self._given_records = records

    @cached_property
    def records(self) -> Records:
        return self._given_records or FileRecords(self.settings.state_path, self.locks)

    def records_of(self, host: str) -> Records:
        """Of one host's servers: a program with records of its own has no others."""
        ours = RecordsOfHosts(self.records, lambda each: each == host)
        return self._given_records or ours

    @cached_property
    def catalogue(self) -> Catalogue:
        """This machine's own images."""
        return Catalogue(self.own_images, self.settings.http)

    @property
    def images_directory(self) -> Path:
        """Where images are added and removed: not if they come from Glance."""
        source = self.settings.image_source
        if source is not ImageSourceOption.CATALOGUE:
            advised = f"use the tools of {source.capitalize()}, or set image_source = catalogue"
            raise Unsupported("this", f"image_source = {source}", advised)
        return self.own_images

    @property
    def own_images(self) -> Path:
        """Where this machine's images are, and what passes through it on its way elsewhere."""
        return self.settings.state_path / "images"

    @property
    def uploads(self) -> tuple[Path, TakesUploads] | None:
        """Where images that are made here lie on their way, and where they go; None if they stay,
        or their source takes none."""
        images = self.images
        return (self.own_images, images) if isinstance(images, TakesUploads) else None

    @cached_property
    def images(self) -> Library:
        """Where servers' images come from."""
        if self.settings.image_source is ImageSourceOption.CATALOGUE:
            return self.catalogue
        source: Library = resolve_name("millpond.images.glance:Glance")(
            self.settings.glance, self._signatures
        )
        return source

    @property
    def _signatures(self) -> SignatureCheck | None:
        """What it needs is installed only where signatures are asked for, and under Nova, whose
        users may name certificates."""
        policy = self.settings.signatures
        if self.settings.own_process and not policy.of_every_image:
            return None
        check: SignatureCheck = resolve_name("millpond.images.signatures:Signatures")(policy)
        return check

    def server(self, name_or_id: str, *, shortened: bool = False) -> Server:
        """By name or id; ``shortened``, also by the first eight characters of an id, or more. Also
        if another's record is damaged."""
        if found_by_id := self.records.find(ServerId(name_or_id)):
            return found_by_id
        servers, damaged = self.records.readable()
        if found := pick("server", servers, name_or_id, shortened=shortened):
            return found
        if damaged:
            raise damaged[0]
        question = did_you_mean((each.name for each in servers), name_or_id)
        advice = f"{question}'{Tool.SERVER} list' shows what there is"
        if begun := begun_by(servers, name_or_id):
            advice = f"the id of {begun[0].name!r} begins so: say its name, or the whole id"
        raise NotFound(f"there is no server {name_or_id!r}", advice)

    def image_users(self, image: Image) -> tuple[str, ...]:
        """Servers that were made from the image, or are booted with it."""
        return tuple(
            server.name
            for server in self.records.all()
            if image.id in {each.id for each in server.every_image}
        )

    def image_names(self) -> Mapping[str, str]:
        return {each.id: each.name for each in self.images.all()}
