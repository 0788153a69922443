"""Replacement policies in Python."""


class Replacement:
    """A replacement policy of one's own: what a cache of `capacity` blocks keeps.

    Derive from it, and pass the class to :func:`hither.simulate` beside the names of built-in
    policies; it is made anew for each size. Each access calls either `hit`, or `inserted` (after
    `victim`, if the cache is full). Blocks are numbered from 0, in the order in which they come
    first in the trace.

    Args:
        capacity: blocks that the cache holds, at least 1.

    Example:
        >>> import hither
        >>> class Fifo(hither.Replacement):
        ...     def __init__(self, capacity: int) -> None:
        ...         self.order: dict[int, None] = {}
        ...     def victim(self, incoming: int) -> int:
        ...         block = next(iter(self.order))
        ...         del self.order[block]
        ...         return block
        ...     def inserted(self, block: int) -> None:
        ...         self.order[block] = None
        >>> trace = hither.from_blocks([1, 2, 3, 1, 4, 1, 2])
        >>> for row in hither.simulate(trace, [Fifo, "fifo"], sizes=["2"]):
        ...     print(row.policy, row.misses)
        Fifo 6
        fifo 6
    """

    def __init__(self, capacity: int) -> None:
        pass

    def hit(self, block: int) -> None:
        """The access found `block` in the cache."""

    def victim(self, incoming: int) -> int:
        """The cache is full, and `incoming` needs room.

        Returns:
            The block to evict, which the policy forgets.

        Raises:
            NotImplementedError: a policy has to say this.
        """
        raise NotImplementedError(f"{type(self).__name__} names no victim")

    def inserted(self, block: int) -> None:
        """`block`, which was not there, is in the cache from now on."""
