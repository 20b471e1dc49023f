"""Storage upgrade: move repositories to the current storage format while they are in use.

`hgfleet storage upgrade` writes a new store next to the old store, with the same revisions in the
same order, compares both, and exchanges the two folders in a single system call
(`rename_exchange`). It copies a store like `hg debugupgraderepo` (7.2.4,
`mercurial/upgrade_utils`), which has four faults on a server:

- it holds the lock from the first to the last byte, so no push succeeds for minutes or hours;
- it compares nothing before it puts the new store in place;
- it makes the repository unusable during the swap (a requirement that no client knows, two
  renames), and a kill at that moment leaves it unusable;
- running readers go on reading old offsets in new files.

Here the lock is held twice, each time only as long as a stat of each file takes, and readers stay
with the store that they opened (`hgext/pinned_store.py`). A killed run leaves a folder:

=====================  ================================  ==========================================
killed                 `.hg/storage-upgrade` has         the next run
=====================  ================================  ==========================================
while it copies        an incomplete new store           starts over
after it was complete  a new store, with `complete`      adds new revisions, and goes on
after the exchange     the old store                     removes it, after its last reader
=====================  ================================  ==========================================

The repository itself is intact at every moment.
"""
