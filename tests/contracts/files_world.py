"""Files of messages over the ports of one engine and one object store."""

from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from pathlib import Path

from parley.bodies.writer import Choice, EntryWriter
from parley.core.attachments import MARGIN_MS, Attachment, AttachmentRules, files_of
from parley.errors import Refused
from parley.files.downloads import Downloads
from parley.files.parts import FileParts
from parley.files.removal import FileRemoval
from parley.files.rights import UploadRights
from parley.files.signing import AddressSigner
from parley.files.uploads import Uploads
from parley.model import Appended, Draft, Outcome
from parley.objects.folder import FolderObjects
from parley.objects.ports import Objects
from parley.sending.attaching import Attaching
from parley.telemetry import Metrics
from parley.wire.frames import Entry
from tests.contracts.acting import decode_entry
from tests.contracts.cold_world import ColdWorld, synced
from tests.contracts.engines import OpenStore
from tests.contracts.life_world import StraightSender

HOUR_MS = 3_600_000


class AnySession:
    """Every session is good."""

    async def is_valid(self, user_id: str, session_id: str) -> bool:
        return True


class FilesWorld:
    """`fault_point`: called at labelled points. `cold`: with a cold tier."""

    def __init__(
        self,
        store: OpenStore,
        folder: Path,
        *,
        objects: Objects | None = None,
        cold: ColdWorld | None = None,
        fault_point: Callable[[str], None] = lambda _: None,
    ) -> None:
        engine, metrics = store.engine, Metrics(store.clock)
        self.store = store
        self.log = store.log if cold is None else cold.log
        self.objects = objects or FolderObjects(folder / "files")
        self.parts = FileParts(self.objects)
        self.removal = FileRemoval(
            store.attachments,
            self.parts,
            self.log,
            store.clock,
            metrics,
            unused_ms=HOUR_MS,
            fault_point=fault_point,
        )
        rights = UploadRights(store.accounts, store.directory, AnySession())
        self.uploads = Uploads(
            files=store.attachments,
            parts=self.parts,
            removal=self.removal,
            directory=store.directory,
            rules=AttachmentRules(bytes_max=10**9, types_allowed=("*/*",), types_denied=()),
            rights=rights,
            clock=store.clock,
            make_ids=store.ids,
            metrics=metrics,
            quota_bytes=0,
            upload_ms=HOUR_MS,
            fault_point=fault_point,
        )
        self.downloads = Downloads(
            files=store.attachments,
            parts=self.parts,
            removal=self.removal,
            directory=store.directory,
            signer=AddressSigner(store.kinds.server_keys, "secret"),
            rights=rights,
            clock=store.clock,
            metrics=metrics,
            address_ms=HOUR_MS,
        )
        self.attaching = Attaching(store.attachments, self.log, store.clock, metrics, fault_point)
        self.sender = StraightSender(self.log)
        archiver = None if cold is None else cold.archiver
        self.eraser = EntryWriter(engine.log, engine.entries, archiver, files=self.removal)

    async def announce(self, chat_id: str, user_id: str, data: bytes, name: str = "a.bin") -> Attachment:
        return await self.uploads.announce(
            user_id, chat_id, name, len(data), "application/octet-stream", sha256(data).hexdigest()
        )

    async def upload(self, chat_id: str, user_id: str, data: bytes, name: str = "a.bin") -> Attachment:
        file = await self.announce(chat_id, user_id, data, name)
        return (await self.uploads.receive(file, 0, file.size, in_chunks(data))).attachment

    async def send(self, draft: Draft, *files: Attachment) -> Appended:
        draft.attachments = tuple(file.attachment_id for file in files)
        return await self.attaching.send(draft, self.sender.send)

    async def try_send(self, draft: Draft, *files: Attachment) -> Outcome:
        try:
            return await self.send(draft, *files)
        except Refused as error:
            return error.refusal

    async def erase(self, chat_id: str, sender_id: str) -> None:
        await self.eraser.erase(chat_id, Choice(sender_id=sender_id))

    async def entries(self, chat_id: str) -> list[Entry]:
        rows = await synced(self.log, chat_id)
        return [decode_entry(wire) for _, wire in rows if wire is not None]

    async def read(self, file: Attachment, start: int = 0, end: int | None = None) -> bytes:
        found = [data async for data in self.parts.read(file, start, file.size if end is None else end)]
        return b"".join(found)

    async def stored(self) -> set[str]:
        """The files with bytes in the object store."""
        return {one.key.partition("/")[0] for one in await self.objects.find("")}

    async def referred_to(self, chat_id: str) -> set[str]:
        return {file for entry in await self.entries(chat_id) for file in files_of(entry)}

    async def sweep_all(self) -> None:
        """Time passes until nothing is left to sweep."""
        for _ in range(4):
            self.store.clock.advance(HOUR_MS + MARGIN_MS + 1)
            await self.removal.sweep()


async def in_chunks(data: bytes, size: int = 300) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]
