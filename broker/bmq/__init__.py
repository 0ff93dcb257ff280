"""BlazingMQ: decisions in every package but `assembly`, which puts nodes together over the shell."""
