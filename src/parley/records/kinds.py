"""Every kind of record of one store, for those who put its parts together."""

from __future__ import annotations

from parley.clock import Clock
from parley.records.account_admin import AccountAdmin
from parley.records.accounts import Accounts
from parley.records.amendments import Amendments
from parley.records.attachments import Attachments
from parley.records.audit import AuditLog
from parley.records.book import Book
from parley.records.chat_settings import Retentions, SettingsOfChats
from parley.records.consent import Consents
from parley.records.deliveries import DeliveryRecords
from parley.records.erasures import Erasures
from parley.records.invitations import Invitations
from parley.records.listing import Listing
from parley.records.log_hashes import LogHashes
from parley.records.push import PushRecords
from parley.records.raised import EMBEDDED_SECONDS, SHARED_SECONDS, RaisedLater
from parley.records.relations import Relations
from parley.records.server_keys import ServerKeys
from parley.records.sessions import Sessions
from parley.records.tokens import ApiTokens, ExternalIds
from parley.store.ports import Engine
from parley.store.tables import (
    DEVICE_LISTS,
    ERASURE_REPORTS,
    FAILING_RECIPIENTS,
    LINKS,
    PAGE_SESSIONS,
    REPORTS,
    alone,
)


class Kinds:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        records = engine.records
        self.records = records
        at_once = engine.cursors.rides_with_appends
        self.raised = RaisedLater(records, EMBEDDED_SECONDS if at_once else SHARED_SECONDS)
        self.accounts = Accounts(records, engine.directory, self.raised)
        self.account_admin = AccountAdmin(records, engine.directory, self.accounts, engine.inspection)
        self.sessions = Sessions(records, self.raised)
        self.listing = Listing(engine, clock)
        self.links = Book(records, LINKS)
        self.reports = Book(records, REPORTS)
        self.erasure_reports = Book(records, ERASURE_REPORTS)
        self.failing_recipients = Book(records, FAILING_RECIPIENTS)
        self.device_lists = Book(records, DEVICE_LISTS, at=alone)
        self.page_sessions = Book(records, PAGE_SESSIONS, at=alone)
        self.api_tokens = ApiTokens(records)
        self.external_ids = ExternalIds(records)
        self.audit = AuditLog(records)
        self.amendments = Amendments(records)
        self.log_hashes = LogHashes(records)
        self.erasures = Erasures(records)
        self.chat_settings = SettingsOfChats(records)
        self.retentions = Retentions(records)
        self.attachments = Attachments(records, clock)
        self.server_keys = ServerKeys(records)
        self.deliveries = DeliveryRecords(engine, clock)
        self.push = PushRecords(records)
        self.consents = Consents(records, engine.directory)
        self.relations = Relations(records, engine.directory, self.accounts, clock)
        self.invitations = Invitations(records, engine.directory, self.accounts, clock)

    async def close(self) -> None:
        """Make durable what was noted. Before the engine is closed."""
        await self.raised.close()
