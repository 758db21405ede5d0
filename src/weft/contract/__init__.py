"""The HTTP interface as a table: which call of the client is which route, and what its values look like on the way.

The server answers by this table and the remote client asks by it, so neither can know a route that the other does not.
"""
