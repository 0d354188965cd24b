"""Glance as the image source."""

import hashlib
import logging
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from openstack.connection import Connection
from openstack.exceptions import NotFoundException
from openstack.image.v2._proxy import Proxy
from openstack.image.v2.image import Image as Answer

from millpond.errors import (
    CannotResume,
    FetchFailed,
    ImageNotActive,
    ImageNotFound,
    ImageRefused,
    MillpondError,
    UploadFailed,
)
from millpond.images.formats.inspection import Inspection
from millpond.images.glance_answers import INDEX_LIST, INDEX_OF, INDEX_ROOT, to_image
from millpond.images.index import Index, index_length
from millpond.images.source import Parts, Proof, SignatureCheck, Stream, Upload
from millpond.model.callbacks import Progress
from millpond.model.cloud import CloudAccess
from millpond.model.image import Image
from millpond.model.names import UUID, ImageId, pick
from millpond.model.sizes import MiB
from millpond.records.journal import undo_on_failure
from millpond.system import cloud
from millpond.system.http import BLOCK, Reading, begins_at

LOG = logging.getLogger(__name__)

_OF_A_PART = (200, 206, 400, 416)
"""Answers to a request for a part of an image: where the store gives none, Glance says 400."""

_UNFINISHED = ("queued", "saving")

_OF_ITS_BYTES = re.compile(r"img_signature|owner_specified\.openstack\.|millpond_index_")
"""Properties that are true of the bytes of one image, and not of an image that comes of it."""

_STORING = 600
"""Seconds that Glance has to store the last of what was sent, and to answer."""

_HEADERS = 16 * MiB
"""What is read of an image at the most to find out how large a disk it holds. The header of a VHDX
may end anywhere; programs let it end within 4 MiB. All others end within 64 KiB."""


class Glance:
    vouches_for_index = False
    """Whoever owns an image sets its properties."""

    def __init__(self, access: CloudAccess, signatures: SignatureCheck | None = None) -> None:
        self._access = access
        self._signatures = signatures

    def all(self) -> list[Image]:
        """Those that a server can be made from; why others are left out is for the log."""
        found = []
        for answer in self._list():
            try:
                found.append(to_image(answer))
            except MillpondError as error:
                LOG.debug("left out: %s", error)
        return sorted(found, key=lambda image: (image.name, image.id))

    def get(self, name_or_id: str, *, shortened: bool = False) -> Image:
        if re.fullmatch(UUID, name_or_id):
            with suppress(ImageNotFound):
                return self.describe(ImageId(name_or_id))
        named = self._list(name=name_or_id) if name_or_id else []
        if len(named) == 1:
            return self._measure(to_image(named[0]))
        found = pick("image", self.all(), name_or_id, shortened=shortened)
        if found is None:
            raise ImageNotFound(name_or_id)
        return self._measure(found)

    def describe(self, id: ImageId) -> Image:
        return self._measure(to_image(self._answer(id)))

    def open(self, image: Image) -> Stream:
        """An image's bytes never change in Glance, so that parts of them fit together."""

        def chunks(offset: int) -> Iterator[bytes]:
            return self._chunks(image, offset, image.size)

        return Stream(
            chunks=chunks,
            retries=self._access.patience.retries,
            digest=image.expected,
            length=lambda: image.size,
            begin_proof=self._begin_proof(image),
        )

    def upload(self, upload: Upload, progress: Progress) -> Image:
        try:
            with undo_on_failure() as undo:
                undo.callback(self._give_up, upload)
                self._create(upload)
                self._fill(upload, progress)
                image = to_image(self._answer(upload.id))
                if image.digest != _digest_of(upload, image.digest_algorithm):
                    raise UploadFailed(upload.name, "Glance has other bytes than were sent")
        except FetchFailed as error:
            raise UploadFailed(upload.name, error.reason) from error
        LOG.info("uploaded image %s (%s) to Glance", upload.name, upload.id)
        return replace(image, virtual_size=upload.virtual_size)

    def find_index(self, image: Image) -> Index | None:
        """The list from where the image says it is, if its root is the one that the image states.
        It is a claim, as the digest is."""
        listed = image.properties.get(INDEX_LIST, "")
        if not image.index_root or not re.fullmatch(UUID, listed):
            return None
        try:
            found = to_image(self._answer(ImageId(listed)))
        except (ImageNotFound, ImageNotActive, ImageRefused):
            return None
        length = index_length(image.size)
        if found.size != length:
            return None
        index = Index(size=image.size, digests=_first(length, self._chunks(found, 0, length)))
        return index if index.root == image.index_root else None

    def state_index(self, image: Image, root: str, listed: ImageId) -> Image:
        """As properties of the image. An image that holds the list of one that cannot say so is
        deleted."""
        stated = {INDEX_ROOT: root, INDEX_OF: image.digest, INDEX_LIST: listed}
        with undo_on_failure() as undo, self._explaining(f"image {image.id} of Glance"):
            undo.callback(self._delete, listed)
            self._api.update_image(image.id, **stated)  # by its id: all is added, or replaced
        LOG.info("published the index of image %s (%s)", image.name, image.id)
        return self.describe(image.id)

    def unfinished(self, id: ImageId) -> str | None:
        try:
            answer = self._answer(id)
        except ImageNotFound:
            return None
        return str(answer.name or id) if answer.status in _UNFINISHED else None

    def abandon(self, id: ImageId) -> None:
        if self.unfinished(id):
            self._delete(id)

    def locations(self, image: Image) -> tuple[str, ...]:
        """Glance shows them to those whom show_multiple_locations and its policy allow. None where
        signatures are checked: what is linked there is used without having been read."""
        if self._signatures and self._signatures.concerns(image):
            return ()
        answer = self._answer(image.id)
        several = [str(each["url"]) for each in answer.locations or ()]
        return tuple(several or filter(None, [answer.direct_url]))

    def find_parts(self, image: Image) -> Parts:
        """Whether its store gives any, Glance says when it is asked."""

        def read(offset: int, length: int) -> bytes:
            return _first(length, self._chunks(image, offset, offset + length))

        return Parts(read=read, location=f"image {image.id} of Glance")

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
        if self._signatures is None or not self._signatures.concerns(image):
            return None
        with self._explaining(f"the certificate of image {image.id}"):
            return self._signatures.proof_of(image, self._connection.session.auth)

    def _list(self, **query: str) -> list[Answer]:
        with self._explaining("the list of images of Glance"):
            return list(self._api.images(**query))

    def _answer(self, id: ImageId) -> Answer:
        with self._explaining(f"image {id} of Glance"):
            try:
                return self._api.get_image(id)
            except NotFoundException as error:
                raise ImageNotFound(id) from error

    def _create(self, upload: Upload) -> None:
        described = {
            "id": upload.id,
            "name": upload.name,
            "disk_format": upload.format,
            "container_format": "bare",
        }
        inherited = {
            key: value for key, value in upload.properties.items() if not _OF_ITS_BYTES.match(key)
        }
        hidden = {"os_hidden": True} if upload.hidden else {}
        with self._explaining(f"image {upload.id} of Glance"):
            response = self._api.post("/images", json=inherited | described | hidden)
        if response.status_code != 201:
            raise self._reading(upload.name).refusal(response.status_code)

    def _fill(self, upload: Upload, progress: Progress) -> None:
        what = f"image {upload.id} of Glance"
        reading = self._reading(what)
        headers = {
            "Content-Type": "application/octet-stream",
            "X-OpenStack-Image-Size": str(upload.size),  # some stores make room first
        }
        with self._explaining(what), reading.explaining(), upload.path.open("rb") as file:
            response = self._api.put(
                f"/images/{upload.id}/file",
                data=_Watched(file, upload.size, progress),
                headers=headers,
                timeout=(self._access.patience.read_seconds, _STORING),
                connect_retries=0,  # what was sent is not sent again
                status_code_retries=0,
            )
        if response.status_code != 204:
            raise reading.refusal(response.status_code)

    def _delete(self, id: ImageId) -> None:
        with self._explaining(f"image {id} of Glance"):
            self._api.delete_image(id, ignore_missing=True)

    def _give_up(self, upload: Upload) -> None:
        try:
            self._delete(upload.id)  # the id is new: whatever bears it is what we sent
        except MillpondError as error:
            LOG.warning(
                "image %s (%s), whose upload failed, may still be in Glance: %s",
                upload.name,
                upload.id,
                error,
            )

    def _measure(self, image: Image) -> Image:
        """With the size of its disk. Glance looks only into images whose container is bare, and
        does not know ploop."""
        if image.virtual_size:
            return image

        def read(offset: int, length: int) -> bytes:
            return self._piece(image, offset, length)

        try:
            size = Inspection(image.format, image.name).measure(read, image.size, _HEADERS)
        except CannotResume as error:  # it is told when all of it has arrived
            LOG.debug("the size of the disk in image %s is not known yet: %s", image.id, error)
            return image
        return replace(image, virtual_size=size)

    def _piece(self, image: Image, offset: int, length: int) -> bytes:
        """Some of its bytes. A store may give only all of them: then these are read from the first
        one on, as far as headers go."""
        end = offset + length
        try:
            return _first(length, self._chunks(image, offset, end))
        except CannotResume:
            if end > _HEADERS:
                raise
        return _first(end, self._chunks(image, 0, image.size))[offset:]

    def _chunks(self, image: Image, offset: int, end: int) -> Generator[bytes]:
        what = f"image {image.id} of Glance"
        reading = self._reading(what)
        is_part = (offset, end) != (0, image.size)
        last = end - 1 if end < image.size else ""
        with self._explaining(what), reading.explaining():
            response = self._api.get(
                f"/images/{image.id}/file",
                headers={"Accept-Encoding": "identity"}
                | ({"Range": f"bytes={offset}-{last}"} if is_part else {}),
                stream=True,
                timeout=reading.timeout,
                connect_retries=0,  # who receives tries again
                status_code_retries=0,
            )
            with closing(response):
                if is_part and response.status_code in _OF_A_PART:
                    if not begins_at(response, offset):
                        raise CannotResume(what, "its store gives no part of it")
                elif response.status_code != 200:
                    if response.status_code == 404:
                        self._answer(image.id)  # gone altogether, or only its bytes?
                    raise reading.refusal(response.status_code)
                yield from reading.body(response, offset, end)

    def _reading(self, what: str) -> Reading:
        return Reading(shown=what, patience=self._access.patience)

    def _explaining(self, what: str) -> AbstractContextManager[None]:
        return cloud.explaining(self._reading(what), "Glance")


class _Watched:
    """A file to send whose progress is told. Its length makes it one answer, without chunks: not
    every server before Glance takes those."""

    def __init__(self, file: BinaryIO, size: int, progress: Progress) -> None:
        self._file = file
        self._size = size
        self._progress = progress

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        while piece := self.read(BLOCK):
            yield piece

    def read(self, count: int) -> bytes:
        piece = self._file.read(max(count, BLOCK))
        self._progress(len(piece))
        return piece


def _digest_of(upload: Upload, algorithm: str) -> str:
    if algorithm == "sha512":
        return upload.digest
    with upload.path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _first(length: int, chunks: Generator[bytes]) -> bytes:
    """So many bytes, and no more are waited for."""
    found = bytearray()
    with closing(chunks):
        while len(found) < length and (chunk := next(chunks, b"")):
            found += chunk
    return bytes(found[:length])
