"""Certificates of public names from a CA that speaks ACME (RFC 8555).

lego speaks the protocol. `renewal` decides when a certificate is due, `issuing` runs lego and swaps
the certificate that the servers of the host read.
"""
