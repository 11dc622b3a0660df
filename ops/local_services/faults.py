"""What a person is told."""


class ServiceError(Exception):
    """What is wrong, as one sentence that says what to do where that is known."""


class PortTaken(ServiceError):
    """Another program listens where a service should."""
