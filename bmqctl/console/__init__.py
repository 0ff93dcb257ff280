"""The console: pages that show a cluster of either system and let a person act on it.

`application` is the ASGI application; `assets` are the pages. All questions and actions go through an object of either
system (`cluster`), with the person's credentials.
"""
