"""The console: pages that show a cluster of either system, and what a person may do there.

`application` is the server's side, an ASGI application; `assets` are the pages. What a cluster is asked and told goes
through an object of either system (`cluster`) that speaks with a person's credentials.
"""
