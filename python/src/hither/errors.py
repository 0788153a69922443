"""What can go wrong. Texts are those of the command: they name the file and the place."""


class Error(Exception):
    """Anything that hither cannot do. All exceptions of the package are of this class."""


class RequestError(Error, ValueError):
    """A request that cannot be met: an unknown policy or format, a size of 0."""


class TraceError(Error):
    """A trace that cannot be read: it is not there, damaged, or of another format."""


class ClosedError(Error, ValueError):
    """The trace was closed."""


class PolicyError(Error):
    """A policy in Python named a victim that is not in the cache. The text names the access."""


class Cancelled(Error):
    """The work was ended early."""
