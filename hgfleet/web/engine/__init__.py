"""hgweb of Mercurial in this process: its repositories, a run, and the cache of answers."""
