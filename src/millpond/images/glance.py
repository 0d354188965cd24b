"""Glance as the image source."""

import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import NotFoundException
from openstack.image.v2._proxy import Proxy
from openstack.image.v2.image import Image as Answer

from millpond.errors import (
    CannotResume,
    ImageNotActive,
    ImageNotFound,
    ImageRefused,
    MillpondError,
)
from millpond.images.source import Proof, SignatureCheck, Stream, picked
from millpond.model.cloud import CloudAccess
from millpond.model.formats import DiskFormat, ImageFormat
from millpond.model.image import Image
from millpond.model.names import UUID, ImageId
from millpond.system import cloud
from millpond.system.http import Reading, begins_at

LOG = logging.getLogger(__name__)

# Properties of the disk that the SDK knows by name; those that it does not are apart.
_KNOWN = re.compile(r"(?:hw|img)_.+|os_(?!hash_|hidden).+|kernel_id|ramdisk_id")
_CONTAINERS = frozenset({"bare", "ami", "aki", "ari"})


class Glance:
    def __init__(self, access: CloudAccess, signatures: SignatureCheck | None = None) -> None:
        self._access = access
        self._signatures = signatures

    def all(self) -> list[Image]:
        """Those that a server can be made from; why others are left out is for the log."""
        found = []
        for answer in self._list():
            try:
                found.append(_image(answer))
            except MillpondError as error:
                LOG.debug("left out: %s", error)
        return sorted(found, key=lambda image: (image.name, image.id))

    def get(self, name_or_id: str) -> Image:
        if re.fullmatch(UUID, name_or_id):
            with suppress(ImageNotFound):
                return self.describe(ImageId(name_or_id))
        named = self._list(name=name_or_id) if name_or_id else []
        if len(named) == 1:
            return _image(named[0])
        return picked(self.all(), name_or_id)

    def describe(self, id: ImageId) -> Image:
        return _image(self._answer(id))

    def open(self, image: Image) -> Stream:
        """An image's bytes never change in Glance, so that parts of them fit together."""

        def chunks(offset: int) -> Iterator[bytes]:
            return self._chunks(image, offset)

        return Stream(
            chunks=chunks,
            retries=self._access.patience.retries,
            digest=image.expected,
            begin_proof=self._begin_proof(image),
        )

    def locations(self, image: Image) -> tuple[str, ...]:
        """Glance shows them to those whom show_multiple_locations and its policy allow. None where
        signatures are checked: what is linked there is used without having been read."""
        if self._signatures:
            return ()
        answer = self._answer(image.id)
        several = [str(each["url"]) for each in answer.locations or ()]
        return tuple(several or filter(None, [answer.direct_url]))

    def local_file(self, _image: Image) -> Path | None:
        """A file of Glance's is on its own host, and was not inspected."""
        return None

    @cached_property
    def _api(self) -> Proxy:
        api = self._connection.image
        assert isinstance(api, Proxy)  # version 1 is gone since 2018
        return api

    @cached_property
    def _connection(self) -> Connection:
        return cloud.connect(self._access, "image")

    def _begin_proof(self, image: Image) -> Callable[[], Proof] | None:
        """Who we are for Glance we are for the key manager, too."""
        if self._signatures is None:
            return None
        with self._explained(f"the certificate of image {image.id}"):
            return self._signatures.proof_of(image, self._connection.session.auth)

    def _list(self, **query: str) -> list[Answer]:
        with self._explained("the list of images of Glance"):
            return list(self._api.images(**query))

    def _answer(self, id: ImageId) -> Answer:
        with self._explained(f"image {id} of Glance"):
            try:
                return self._api.get_image(id)
            except NotFoundException as error:
                raise ImageNotFound(id) from error

    def _chunks(self, image: Image, offset: int) -> Iterator[bytes]:
        what = f"image {image.id} of Glance"
        reading = self._reading(what)
        with self._explained(what), reading.explained():
            response = self._api.get(
                f"/images/{image.id}/file",
                headers={"Accept-Encoding": "identity"}
                | ({"Range": f"bytes={offset}-"} if offset else {}),
                stream=True,
                timeout=reading.timeout,
                connect_retries=0,  # who receives tries again
                status_code_retries=0,
            )
            with closing(response):
                if offset and response.status_code in (200, 206, 416):
                    if not begins_at(response, offset):
                        raise CannotResume(what, "it cannot be gone on with where it stopped")
                elif response.status_code != 200:
                    if response.status_code == 404:
                        self._answer(image.id)  # gone altogether, or only its bytes?
                    raise reading.refusal(response.status_code)
                yield from reading.body(response, offset, image.size)

    def _reading(self, what: str) -> Reading:
        return Reading(shown=what, patience=self._access.patience)

    def _explained(self, what: str) -> AbstractContextManager[None]:
        return cloud.explained(self._reading(what), "Glance")


def _image(answer: Answer) -> Image:
    name = answer.name or answer.id
    if answer.status != "active":
        raise ImageNotActive(name, str(answer.status))
    format = _format(answer, name)
    algorithm, digest = _digest(answer, name)
    return Image(
        id=ImageId(answer.id),
        name=name,
        format=format,
        size=answer.size,
        virtual_size=_virtual_size(answer, format, name),
        digest=digest,
        digest_algorithm=algorithm,
        created=str(answer.created_at),
        properties=_properties(answer.to_dict(computed=False, original_names=True)),
    )


def _format(answer: Answer, name: str) -> ImageFormat:
    if answer.container_format not in _CONTAINERS:
        reason = f"it is packed in a container of the format {answer.container_format!r}"
        raise ImageRefused(name, reason, "upload the disk itself, with container_format bare")
    if answer.disk_format not in set(ImageFormat):
        reason = f"its format is {answer.disk_format!r}"
        raise ImageRefused(name, reason, f"formats that can be used: {', '.join(ImageFormat)}")
    return ImageFormat(answer.disk_format)


def _digest(answer: Answer, name: str) -> tuple[str, str]:
    if answer.hash_algo in hashlib.algorithms_available and answer.hash_value:
        return str(answer.hash_algo), str(answer.hash_value)
    if answer.checksum:
        return "md5", str(answer.checksum)  # of images from before os_hash_algo
    raise ImageRefused(name, "Glance states no digest of it", "upload it again")


def _virtual_size(answer: Answer, format: ImageFormat, name: str) -> int:
    if answer.virtual_size:
        return int(answer.virtual_size)
    if format.content is DiskFormat.RAW:
        return int(answer.size)
    reason = "Glance does not say how large a disk it holds"
    raise ImageRefused(
        name, reason, "upload it again to a Glance that looks into images, or as raw"
    )


def _properties(answer: Mapping[str, Any]) -> dict[str, str]:
    known = {key: value for key, value in answer.items() if _KNOWN.fullmatch(key)}
    said = {**known, **(answer.get("properties") or {})}
    said.pop("stores", None)  # Glance's, and unknown to the SDK
    return {key: str(value) for key, value in said.items() if value is not None}
