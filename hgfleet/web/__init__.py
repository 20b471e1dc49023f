"""Repositories over HTTPS, for reading.

gunicorn runs `hgfleet.web.app:application`, behind nginx, as a user that cannot write a repository.
Mercurial's own hgweb renders pages and speaks the wire protocol.

The cache is keyed by the stat of a repository's files, its fingerprint (`hgfleet.hg.fingerprint`).

hgwebdir is not used: it parses configuration, opens the repository anew and collects all garbage
on every request.
"""
