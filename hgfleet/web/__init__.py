"""Repositories over HTTPS, for reading.

gunicorn runs `hgfleet.web.app:application`, behind nginx, as a user that cannot write a repository.
Mercurial's own hgweb renders pages and speaks the wire protocol.

The key of the cache is a repository's fingerprint: the stat of its files
(`hgfleet.hg.fingerprint`).

hgwebdir is not used: it parses configuration, opens the repository again and collects all garbage
on every request.
"""
