"""The watching of queues and topics by `bmqctl top`: samples, rates between them, and the screen."""
