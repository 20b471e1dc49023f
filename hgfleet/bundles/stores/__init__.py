"""The object stores of a site: their objects, as clients read them, and who may have them."""
