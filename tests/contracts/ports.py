"""The ports of a store that is opened, and opened again, in the midst of a test."""

from parley.app.engines import Store
from parley.store.ports import Accounts, Cursors, Directory, Log, Relations, Standings


class PortsOfStore:
    """Always those of the store that is open now."""

    store: Store

    @property
    def log(self) -> Log:
        return self.store.log

    @property
    def directory(self) -> Directory:
        return self.store.directory

    @property
    def accounts(self) -> Accounts:
        return self.store.accounts

    @property
    def cursors(self) -> Cursors:
        return self.store.cursors

    @property
    def relations(self) -> Relations:
        return self.store.relations

    @property
    def standings(self) -> Standings:
        return self.store.standings
