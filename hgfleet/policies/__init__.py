"""Policies: content and history that a repository refuses to store, for every pusher.

The registry names the policies of a repository, with their options; `hgext/policies.py` evaluates
them for each transaction. A new policy is a subclass of `Policy` (`base.py`) in the module of its
subject, an entry of the catalog (`catalog.py`), and a line in the table of the operator handbook.
"""
