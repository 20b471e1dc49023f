"""The web part: repositories over HTTPS, for reading.

`hgfleet.web.app:application` is what gunicorn runs, behind nginx, as a user that cannot write a
repository. Mercurial's own hgweb renders and speaks the wire protocol; what is here around it:

routing        which repository a path means (pure)
wire           which wire commands may come over HTTPS and what their arguments look like (pure)
state          the few files whose stat defines what a repository answers
repositories   hgweb objects, one per repository, never shared by two threads at a time
cache          answers, keyed by everything they depend on, bounded in bytes
pages          the index in HTML and JSON
access_log     one JSON line per request
app            the WSGI application that joins these

hgwebdir is not used: it parses configuration, opens the repository anew and collects all garbage
on every request.
"""
