"""The headers of requests and answers, by who sends them. `headers.table` says which request has which."""
