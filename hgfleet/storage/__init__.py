"""Moving repositories to the storage format that new ones are created with, under their users.

`hgfleet storage upgrade` writes a new store beside the old one, from the same revisions in the same
order, compares, and exchanges the two folders in one system call (`rename_exchange`). Why not `hg
debugupgraderepo`, on whose way of copying a store this builds (7.2.4, `mercurial/upgrade_utils`):

- it holds the lock from the first to the last byte, so nobody pushes for minutes or hours;
- it compares nothing before it puts the new store in place;
- it takes the repository away while it swaps (a requirement that no client knows, two renames), and
  a kill at that moment leaves it away;
- readers that are under way go on reading old offsets in new files.

Here the lock is held twice for the time that a look at each file takes, and readers stay with the
store that they opened (`hgext/pinned_store.py`). What a killed run leaves is in one folder:

=====================  ================================  ==========================================
killed                 `.hg/storage-upgrade` has         what the next run does
=====================  ================================  ==========================================
while it copies        an incomplete new store           begins again
after it was complete  a new store, with `complete`      adds what was pushed since, and goes on
after the exchange     the old store                     removes it, once nobody reads it
=====================  ================================  ==========================================

The repository itself is whole at every instant.
"""
