"""The directory part: people, keys and groups in LDAP, and the check of a replica."""
