//! The TCG plugin: sees each data access of a guest, runs it through a modelled cache hierarchy, and counts.
