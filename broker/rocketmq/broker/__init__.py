"""One RocketMQ broker: its services put together, and the requests that each of them takes."""
