"""Files as tests have them."""

from msgspec.structs import replace

from parley import ids
from parley.core.attachments import Attachment, AttachmentState

DIGEST = "00ff" * 16


def new_attachment(chat_id: str = "chat_1", number: int = 1, **changed: object) -> Attachment:
    attachment = Attachment(
        chat_id=chat_id,
        attachment_id=ids.ATTACHMENT + ids.ulid(number, 0),
        user_id="user_1",
        name="Ünïcode ✓.png",
        size=5_000_000_000,
        content_type="image/png",
        sha256=DIGEST,
        state=AttachmentState.COMPLETE,
        created_at_ms=1,
        since_ms=2,
        upload_until_ms=3,
        width=640,
        height=480,
        preview="data:image/webp;base64,AAAA",
        client_key=b"\x00\xff" * 8,
        sequence=2**40,
    )
    return replace(attachment, **changed)
