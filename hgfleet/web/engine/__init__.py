"""hgweb of Mercurial in this process: its repositories, one run, and the cache of answers."""
