"""What HTTP handlers and connections work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from parley.accounts.accounts import AccountManager
from parley.accounts.api_tokens import ApiTokenService
from parley.accounts.external_people import ExternalPeople
from parley.accounts.known_devices import KnownDevices
from parley.accounts.links import LinkService
from parley.accounts.page_sessions import PageSessions
from parley.accounts.sign_in import SignIn
from parley.accounts.user_admin import UserAdmin
from parley.backup.manifests import FoundBackups
from parley.bodies.erasures import BodyAdmin
from parley.chats.chat_admin import ChatAdmin
from parley.chats.invitations import InvitationService
from parley.chats.membership import Membership
from parley.chats.operated_chats import OperatedChats
from parley.chats.reader import ChatReader
from parley.chats.reports import ReportService
from parley.clock import Clock
from parley.config import Config
from parley.core.rates import RateLimiter
from parley.delivery.admin import DeliveryAdmin
from parley.files.service import FileService
from parley.gateway.chat_finder import ChatFinder
from parley.gateway.client_ids import ClientIds
from parley.gateway.device_leases import DeviceLeases
from parley.gateway.engine_beside import EngineBeside
from parley.gateway.hub import Hub
from parley.gateway.operated_nodes import OperatedNodes
from parley.gateway.operated_people import OperatedPeople
from parley.gateway.operator_view import OperatorView
from parley.gateway.outbox import Flusher
from parley.gateway.shared_rates import SharedRates
from parley.gateway.socket_groups import SocketGroups
from parley.gateway.turns import LoopTurns
from parley.people.chat_list import ChatListService
from parley.people.contacts import ContactService
from parley.people.presence import PresenceService
from parley.people.receipts import ReceiptService
from parley.people.typing import TypingService
from parley.push.fanout_admin import FanoutAdmin
from parley.push.registrations import PushRegistrations
from parley.search.service import SearchService
from parley.sending.message_actions import MessageActions
from parley.sending.service import SendService
from parley.store.invariants import Findings
from parley.telemetry import Metrics
from parley.traces.timeline import TimelineService

if TYPE_CHECKING:
    from parley.gateway.repeated_requests import RepeatedRequests


class ApiServices(Struct, frozen=True, kw_only=True, eq=False):
    """The use cases behind the HTTP API, the rates that it is held to, and the configuration."""

    config: Config
    clock: Clock
    random_bytes: Callable[[int], bytes]
    accounts: AccountManager
    sign_in: SignIn
    pages: PageSessions
    api_tokens: ApiTokenService
    external_people: ExternalPeople
    user_admin: UserAdmin
    chat_admin: ChatAdmin
    membership: Membership
    invitations: InvitationService
    sending: SendService
    client_ids: ClientIds
    reader: ChatReader
    message_actions: MessageActions
    search: SearchService
    presence: PresenceService
    receipts: ReceiptService
    contacts: ContactService
    chat_list: ChatListService
    deliveries: DeliveryAdmin
    push: PushRegistrations
    fanouts: FanoutAdmin
    operated_chats: OperatedChats
    operated_people: OperatedPeople
    chat_finder: ChatFinder
    beside: EngineBeside
    rates: SharedRates
    operator_view: OperatorView
    nodes: OperatedNodes
    timeline: TimelineService
    body_admin: BodyAdmin
    backups: Callable[[], Awaitable[FoundBackups]]
    check_chat: Callable[[str], Awaitable[Findings]]
    links: LinkService
    reports: ReportService
    repeated: RepeatedRequests
    files: FileService | None = None
    """None: this server takes no files."""


class ConnectionServices(Struct, frozen=True, kw_only=True, eq=False):
    """What every connection of a node works with. `arrived` is called with the id of a user who connects."""

    clock: Clock
    metrics: Metrics
    sign_in: SignIn
    sending: SendService
    reader: ChatReader
    hub: Hub
    devices: DeviceLeases
    known_devices: KnownDevices
    presence: PresenceService
    typing: TypingService
    chat_list: ChatListService
    arrived: Callable[[str], None]
    message_rate: RateLimiter
    frame_rate: RateLimiter
    work_rate: RateLimiter
    flusher: Flusher
    turns: LoopTurns
    users: SocketGroups
    connections_per_user: int
