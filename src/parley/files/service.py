"""Everything about files that a gateway needs."""

from __future__ import annotations

from msgspec import Struct

from parley.core.attachments import Attachment, AttachmentState
from parley.errors import ATTACHMENT_USED, NO_SUCH_ATTACHMENT, Refused
from parley.files.downloads import Downloads
from parley.files.removal import FileRemoval
from parley.files.renditions import Renditions
from parley.files.uploads import Uploads


class FileService(Struct, frozen=True, eq=False):
    uploads: Uploads
    downloads: Downloads
    removal: FileRemoval
    renditions: Renditions

    def close(self) -> None:
        """Nothing of it keeps a server that shuts down."""
        self.uploads.close()

    async def discard(self, user_id: str, file: Attachment) -> None:
        """Remove a file of one's own that no message refers to."""
        if file.user_id != user_id:
            raise Refused(NO_SUCH_ATTACHMENT)
        if file.state not in (AttachmentState.UPLOADING, AttachmentState.COMPLETE):
            raise Refused(ATTACHMENT_USED.because("a message refers to this file; delete the message"))
        if not await self.removal.discard(file):
            raise Refused(NO_SUCH_ATTACHMENT)
