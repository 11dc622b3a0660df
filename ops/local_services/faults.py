"""The errors that users see."""


class ServiceError(Exception):
    """What is wrong, in one sentence, and what to do if that is known."""


class PortTaken(ServiceError):
    """Another program listens where a service should."""
