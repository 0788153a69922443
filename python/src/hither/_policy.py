"""Policies in Python: what a cache keeps, and which node holds what."""

from collections.abc import Iterable
from typing import Literal

from hither._hither import Nodes

#: What a placement asks for: "migrate", "replicate" or "drop", a block, and a node: where it goes,
#: or where its copy is dropped.
Action = tuple[Literal["migrate", "replicate", "drop"], int, int]


class Replacement:
    """A replacement policy of one's own: what a cache of `capacity` blocks keeps.

    Derive from it, and pass the class to :func:`hither.simulate`, :func:`hither.curve` or
    :func:`hither.place` beside the names of built-in policies; it is made anew for each cache. Each
    access calls either `hit`, or `inserted` (after `victim`, if the cache is full). Blocks are
    numbered from 0, in the order in which they come first in the trace.

    What a policy raises ends the simulation, and is raised there.

    Args:
        capacity: blocks that the cache holds, at least 1.

    Example:
        >>> import hither
        >>> from collections import OrderedDict
        >>> class Fifo(hither.Replacement):
        ...     def __init__(self, capacity: int) -> None:
        ...         self.order: OrderedDict[int, None] = OrderedDict()
        ...     def victim(self, incoming: int) -> int:
        ...         return self.order.popitem(last=False)[0]
        ...     def inserted(self, block: int) -> None:
        ...         self.order[block] = None
        ...     def removed(self, block: int) -> None:
        ...         del self.order[block]
        >>> trace = hither.from_blocks([1, 2, 3, 1, 4, 1, 2])
        >>> for row in hither.simulate(trace, [Fifo, "fifo"], sizes=["2"]):
        ...     print(row.policy, row.misses)
        Fifo 6
        fifo 6
    """

    def __init__(self, capacity: int) -> None:
        pass

    def accessed(self, block: int, file: int, file_block: int, site: int, is_write: bool) -> None:
        """Each access, before it is a hit or not: for policies that look at more than the block.

        Args:
            block: the block.
            file: the row in :attr:`Trace.files`.
            file_block: the block's number in the file.
            site: the row in :attr:`Trace.sites`; 0 is unknown.
            is_write: whether it writes.
        """

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

    def removed(self, block: int) -> None:
        """`block` left, and the policy did not choose it.

        Only in :func:`hither.place`, where placements move blocks from node to node.
        """


class Placement:
    """A placement of one's own: which node holds which block.

    Derive from it, and pass the class to :func:`hither.place` beside the names of built-in
    placements. On a trace of files, nodes are caches above storage; on a trace of memory, they hold
    the pages of a program. Methods that return actions may return None, or any number of tuples:
    `("migrate", block, node)` moves the block to a node, `("replicate", block, node)` makes a copy
    there, `("drop", block, node)` drops the copy there. They are done in order, before the next
    call; a node that is full may refuse.

    Args:
        nodes: the nodes: how many (`len(nodes)`), `nodes.capacity(node)` in blocks,
            `nodes.hops(a, b)`, `nodes.latency_ns(a, b)`, `nodes.next_hop(a, b)`, and
            `nodes.median(weights)`, the node with the smallest sum of weight times hops.

    Example:
        >>> import hither
        >>> class OneStep(hither.Placement):
        ...     def __init__(self, nodes: hither.Nodes) -> None:
        ...         self.nodes = nodes
        ...     def accessed(self, block: int, node: int, holder: int, home: int):
        ...         if node != home:
        ...             return [("migrate", block, self.nodes.next_hop(home, node))]
        ...     def forward(self, block: int, node: int, came_from: int | None) -> int | None:
        ...         return came_from
        >>> trace = hither.generate("shared-files{like=oltp,blocks=100}", threads=4)
        >>> own, built_in = hither.place(trace, "mesh:2x2", [OneStep, "one-step"])
        >>> own.placement, own["hit_ratio"] == built_in["hit_ratio"]
        ('OneStep', True)
    """

    def __init__(self, nodes: Nodes) -> None:
        pass

    def place(self, block: int, node: int) -> int:
        """No node holds `block`, which `node` accesses.

        Returns:
            The node that gets it: `node`, unless a policy says otherwise. If it is full and cannot
            make room, the nearest one that can.
        """
        return node

    def accessed(
        self, block: int, node: int, holder: int, home: int
    ) -> Iterable[Action] | None:
        """`node` accesses `block`.

        Args:
            block: the block.
            node: who accesses it.
            holder: the nearest node with a copy, which serves it.
            home: the node with the original.
        """

    def written(self, block: int, node: int) -> Iterable[Action] | None:
        """`node` writes `block`; comes after `accessed` or `place`."""

    def removed(self, block: int, node: int) -> Iterable[Action] | None:
        """The copy at `node` is gone: evicted or dropped. Not called for migrations."""

    def refused(self, what: str, block: int, node: int) -> None:
        """An action was not done: the node is full, or the block is not there any more."""

    def forward(self, block: int, node: int, came_from: int | None) -> int | None:
        """`block`, the last copy, is evicted at `node`. Only for files.

        Args:
            block: the block.
            node: the node that makes room.
            came_from: the node where the block comes from that needs the room; None: storage.

        Returns:
            The node that takes it, or None to let it go.
        """
        return None

    def ended(self) -> Iterable[Action] | None:
        """An iteration of the program ended; in traces without iterations, a period of time."""
        return None
