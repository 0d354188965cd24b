"""The handlers of a host's templates: each is reached and removed by the one that made it."""

import logging
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, cast

from millpond.config import HANDLERS
from millpond.disks.rbd_storage import RbdStorage
from millpond.model.layer import Layer
from millpond.model.template import Template
from millpond.templates.blank import BlankTemplates
from millpond.templates.handler import BaseTemplateImagehandler, HandlerContext, find_handler
from millpond.templates.streams.plan import StreamDirectory

if TYPE_CHECKING:
    from millpond.templates.streams.streaming import StreamingTemplateImagehandler

LOG = logging.getLogger(__name__)

LINKING = "volume-based-linking"
STREAMING = "streaming"
DOWNLOADING = "downloading"
NOT_LINKED = "the files of the host cannot be opened here"


class TemplateHandlers:
    def __init__(
        self,
        wanted: str,
        context: HandlerContext,
        blanks: Callable[[], BlankTemplates],
        cluster: RbdStorage | None,
    ) -> None:
        """``cluster``: where templates are uploaded to, too."""
        self._wanted = wanted
        self._context = context
        self._blanks = blanks
        self._cluster = cluster

    @cached_property
    def chosen(self) -> BaseTemplateImagehandler:
        """Of new templates."""
        kind = find_handler(HANDLERS, self._wanted)
        if not self._context.store.local and self._needs_files(kind):
            LOG.warning("images are not linked: %s", NOT_LINKED)
            kind = find_handler(HANDLERS, DOWNLOADING)
        return kind(self._context)

    def _needs_files(self, kind: type[BaseTemplateImagehandler]) -> bool:
        return issubclass(kind, find_handler(HANDLERS, LINKING))

    @cached_property
    def linking(self) -> BaseTemplateImagehandler:
        """Of templates that are links, whatever handler is chosen for new ones."""
        kind = find_handler(HANDLERS, LINKING)
        return self.chosen if isinstance(self.chosen, kind) else kind(self._context)

    @cached_property
    def streaming(self) -> "StreamingTemplateImagehandler":
        """Of templates that are arriving, whatever handler is chosen for new ones."""
        kind = find_handler(HANDLERS, STREAMING)
        made = self.chosen if isinstance(self.chosen, kind) else kind(self._context)
        return cast("StreamingTemplateImagehandler", made)

    def cleanup(self) -> None:
        """Finish or undo what was interrupted, and look after what is linked."""
        self.chosen.init()
        found = list(self._context.store.all())
        is_linked = any(each.link and not each.streams for each in found)
        if is_linked and self.linking is not self.chosen:
            self.linking.init()
        self.serve_streams()

    def serve_streams(self) -> None:
        """Each has a process. Where none is missing, this costs nothing."""
        store = self._context.store
        if not all(StreamDirectory(store.stream(each)).is_served for each in store.streams()):
            self.streaming.init()

    def find_linked(self, template: str) -> Layer | None:
        """Where a template's bytes are, if it is a link."""
        found = self._context.store.find(template)
        if not found or not found.link:
            return None
        return self.handler_of(found).reach(found).linked_layer

    def renew(self, template: Template) -> Template:
        """Prepare the template of an image again."""
        image = self._context.images.describe(template.image)
        return self.chosen.renew_image(image, template.format)

    def remove(self, template: Template) -> None:
        """Its lock is held, and nothing uses it. In a Ceph cluster it goes first, while its name
        is known here, unless disks of other hosts are backed by it."""
        if self._cluster:
            self._cluster.remove_template(template.volume)
            self._cluster.remove_link_snapshot(template)
        if template.link or template.image:
            self.handler_of(template).drop(template)
        else:
            self._blanks().remove(template)

    def remove_image(self, template: Template) -> None:
        """The template of an image, unless something uses it. Its lock is not held, and it has
        left the cluster."""
        if self._cluster:
            self._cluster.remove_link_snapshot(template)
        self.handler_of(template).remove_image(template.image, template.format)

    def handler_of(self, template: Template) -> BaseTemplateImagehandler:
        if template.streams or self._context.store.stream(template.volume).exists():
            return self.streaming
        return self.linking if template.link else self.chosen
