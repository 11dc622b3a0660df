"""What HTTP handlers work with."""

from __future__ import annotations

from msgspec import Struct

from parley.archive.erasures import BodyAdmin
from parley.chats.accounts import AccountManager
from parley.chats.invitations import InvitationService
from parley.chats.membership import Membership
from parley.chats.reader import ChatReader
from parley.chats.sender import Sender
from parley.chats.timeline import TimelineService
from parley.chats.user_admin import UserAdmin
from parley.clock import Clock
from parley.config import Config
from parley.delivery.admin import DeliveryAdmin
from parley.gateway.operator_view import OperatorView
from parley.gateway.shared_rates import SharedRates
from parley.people.chat_list import ChatListService
from parley.people.contacts import ContactService
from parley.people.presence import PresenceService
from parley.people.receipts import ReceiptService
from parley.push.fanout_admin import FanoutAdmin
from parley.push.registrations import PushRegistrations


class ApiServices(Struct, frozen=True, kw_only=True, eq=False):
    """The use cases behind the HTTP API, the rates that it is held to, and the configuration."""

    config: Config
    clock: Clock
    accounts: AccountManager
    user_admin: UserAdmin
    membership: Membership
    invitations: InvitationService
    sender: Sender
    reader: ChatReader
    presence: PresenceService
    receipts: ReceiptService
    contacts: ContactService
    chat_list: ChatListService
    deliveries: DeliveryAdmin
    push: PushRegistrations
    fanouts: FanoutAdmin
    rates: SharedRates
    operator_view: OperatorView
    timeline: TimelineService
    body_admin: BodyAdmin
