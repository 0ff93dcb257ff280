"""The formats of BlazingMQ: events, schema messages, files, URIs and GUIDs."""
