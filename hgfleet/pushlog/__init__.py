"""Push log: a record of each push, in the store of its repository, and all readers of it."""
