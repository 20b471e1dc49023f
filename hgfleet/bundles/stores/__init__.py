"""The object stores of a site: what they hold, as clients read it, and who may have it."""
