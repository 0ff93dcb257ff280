"""Reading of RocketMQ stores, this project's and Apache's: commit log, consume queues, index and tables."""
