"""Apache RocketMQ: nameserver, broker and store. Decisions only, but for `assembly` and `config`."""
